// How the server is doing: what there is now, and how it has been over the last minutes. What concerns everybody's
// sessions is shown to administrators; everybody else sees their own, from when the page was opened.

import * as api from './api.js';
import { h, say } from './dom.js';
import { Plot } from './plot.js';
import { poll } from './poll.js';
import * as series from './series.js';
import { clock, moment, number, serverNow, several, short, size, span } from './words.js';

/** How often it is asked. */
const EVERY = 2500;

/** What can be shown: its name, its minutes, and into how many stretches of time it is divided. Each stretch is longer
 *  than the time between two samples, so that none is empty. */
const RANGES = /** @type {const} */ ([
  ['5 min', 5, 40],
  ['15 min', 15, 60],
  ['1 h', 60, 60],
]);

/** Samples of a caller's own sessions that are kept. */
const OWN = 1500;

/** @typedef {import('./app.js').Scene} Scene */

/** @param {HTMLElement} place @param {Scene} scene */
export function showOverview(place, scene) {
  const view = new OverviewPage(scene);
  place.append(view.element);
  view.begin();
  return () => view.close();
}

class OverviewPage {
  tiles = new Map(
    /** @type {const} */ (['attached', 'parked', 'closed', 'expired']).map((state) => [state, tile(state)]),
  );
  facts = h('p', { class: 'quiet small' });
  ranges = RANGES.map(([name, minutes, bins]) => ({
    minutes,
    bins,
    button: h('button', { type: 'button', onclick: () => this.choose(minutes) }, name),
  }));
  plots = plots();
  reasons = h('p', { class: 'quiet small' });
  note = h(
    'p',
    { class: 'note', hidden: true },
    'Reconnects, replays and commit times concern everybody’s sessions: they are shown to keys with admin rights.',
  );
  hint = hint();
  element = this.build();

  /** @type {api.Sample[]} */
  samples = [];
  /** @type {api.WholeServer|null} */
  whole = null;
  started = '';
  minutes = 15;

  /** @param {Scene} scene */
  constructor(scene) {
    this.scene = scene;
    this.choose(this.minutes);
  }

  build() {
    this.plots.outcomes.element.append(this.reasons);
    const buttons = this.ranges.map(({ button }) => button);
    const range = h('div', { class: 'filters end', role: 'group', 'aria-label': 'Time shown' }, ...buttons);
    return h(
      'section',
      { class: 'overview', 'aria-labelledby': 'title' },
      h('h1', { id: 'title', class: 'heard' }, 'Overview'),
      h('div', { class: 'tiles' }, ...[...this.tiles.values()].map(({ link }) => link)),
      this.hint,
      h('div', { class: 'tools' }, this.facts, range),
      this.note,
      h('div', { class: 'plots' }, ...Object.values(this.plots).map((plot) => plot.element)),
    );
  }

  begin() {
    this.poll = poll(
      () => this.ask(),
      EVERY,
      (error) => this.scene.failed(error),
    );
  }

  /** @param {number} minutes */
  choose(minutes) {
    this.minutes = minutes;
    for (const range of this.ranges) range.button.setAttribute('aria-pressed', String(range.minutes === minutes));
    if (this.started) this.draw();
  }

  async ask() {
    const after = this.whole ? this.samples.at(-1)?.at_ms : undefined;
    const [overview, found] = await Promise.all([api.overview(after), api.search({ limit: 1 })]);
    if (!overview.caller) throw new api.Refused(401, 'This server asks for a key.');
    this.scene.works();
    clock(overview.now);
    for (const [state, { count }] of this.tiles) say(count, number(found.counts[state]));
    this.hint.hidden = Object.values(found.counts).some((count) => count > 0);
    const first = this.started === '';
    const again = !first && overview.started_at !== this.started;
    this.started = overview.started_at;
    this.take(overview, found.counts);
    this.tell(overview);
    if (again) {
      this.samples = []; // it may count anew: all that it has is asked for
      this.poll?.now();
      return;
    }
    if (first && serverNow() - Date.parse(this.started) < RANGES[0][1] * 60_000) this.choose(RANGES[0][1]);
    this.draw();
  }

  /** @param {api.Overview} overview @param {api.Counts} counts */
  take(overview, counts) {
    this.whole = overview.whole_server;
    if (this.whole) {
      this.samples.push(...this.whole.samples);
      const since = serverNow() - 61 * 60_000;
      this.samples = this.samples.filter((sample) => sample.at_ms > since);
      return;
    }
    const empty = { reconnects: {}, away: [], replayed: 0, lost: 0, commits: null, buffered_bytes: 0 };
    this.samples.push({ at_ms: serverNow(), attached: counts.attached, parked: counts.parked, ...empty });
    this.samples.splice(0, Math.max(0, this.samples.length - OWN));
  }

  /** @param {api.Overview} overview */
  tell(overview) {
    const whole = overview.whole_server;
    const held = whole ? ` · ${size(whole.present.buffered_bytes)} of events held` : '';
    say(this.facts, `Rejoin ${overview.server_version}, running since ${moment(overview.started_at)}${held}`);
    this.note.hidden = whole !== null;
    const { sessions, ...others } = this.plots;
    for (const plot of Object.values(others)) plot.element.hidden = whole === null;
    this.plots.commits.element.hidden ||= whole?.commit_bounds === null;
  }

  draw() {
    const to = serverNow();
    const from = to - this.minutes * 60_000;
    const present = this.whole?.present;
    const samples = present ? [...this.samples, present] : this.samples;
    const bins = this.ranges.find((range) => range.minutes === this.minutes)?.bins ?? 60;
    const last = series.byTime(samples, from, to, bins);
    const show = (/** @type {Plot} */ plot, /** @type {import('./plot.js').Trace[]} */ traces) =>
      plot.show({ from, to, bins, traces });
    show(this.plots.sessions, [
      { name: 'parked', color: 'quiet', shape: 'area', values: series.levels(last, (sample) => sample.parked) },
      {
        name: 'attached',
        color: 'accent',
        shape: 'area',
        values: series.levels(last, (sample) => sample.attached),
      },
    ]);
    if (!this.whole) return;
    show(this.plots.outcomes, series.outcomes(last));
    show(
      this.plots.away,
      quantiles(last, (sample) => sample.away, this.whole.away_bounds, 'again'),
    );
    show(this.plots.replays, [
      { name: 'replayed', color: 'again', shape: 'bar', values: series.growth(last, (sample) => sample.replayed) },
      { name: 'lost', color: 'bad', shape: 'bar', values: series.growth(last, (sample) => sample.lost) },
    ]);
    const bounds = this.whole.commit_bounds;
    if (bounds)
      show(
        this.plots.commits,
        quantiles(last, (sample) => sample.commits, bounds, 'accent'),
      );
    say(this.reasons, refusals(last));
  }

  close() {
    this.poll?.stop();
    for (const plot of Object.values(this.plots)) plot.close();
  }
}

/** What to do while there are no sessions. */
function hint() {
  const step = (/** @type {string} */ sentence, /** @type {string} */ command) =>
    h('li', {}, sentence, h('code', { class: 'command' }, command));
  return h(
    'section',
    { class: 'card hint', hidden: true, 'aria-labelledby': 'hint-title' },
    h('h2', { id: 'hint-title' }, 'No sessions yet'),
    h(
      'ul',
      {},
      h('li', {}, 'Try it: ', h('a', { href: '/play' }, 'open the playground'), ', ask something, and cut the connection.'),
      step('Put your own agent behind it, in any language:', "rejoin --agent 'python3 my_agent.py'"),
      step('Put an MCP server behind it, for any MCP client:', "rejoin --mcp 'npx -y @modelcontextprotocol/server-everything'"),
    ),
  );
}

/** @param {string} state */
function tile(state) {
  const count = h('b', {}, '–');
  const word = h('span', {}, h('span', { class: `dot ${state}`, 'aria-hidden': 'true' }), state);
  return { link: h('a', { class: 'card tile', href: `#/sessions?state=${state}` }, count, word), count };
}

function plots() {
  return {
    sessions: new Plot({ title: 'Sessions', unit: '', format: short, floor: 4 }),
    outcomes: new Plot({ title: 'Reconnects', unit: 'by outcome', format: short, floor: 4 }),
    away: new Plot({ title: 'Time to reconnect', unit: '', format: span, log: true, floor: 1 }),
    replays: new Plot({ title: 'Events', unit: 'replayed and lost', format: short, floor: 4 }),
    commits: new Plot({ title: 'Commit time', unit: '', format: span, log: true, floor: 0.001 }),
  };
}

/** @param {(api.Sample|null)[]} last @param {(sample: api.Sample) => number[]|null} read @param {number[]} bounds
 *  @param {string} color @returns {import('./plot.js').Trace[]} */
function quantiles(last, read, bounds, color) {
  return [
    { name: 'median', color, shape: 'line', values: series.quantiles(last, read, bounds, 0.5) },
    { name: '95 %', color: 'warn', shape: 'line', values: series.quantiles(last, read, bounds, 0.95) },
  ];
}

/** Why clients were not taken back in the time shown. @param {(api.Sample|null)[]} last */
function refusals(last) {
  const known = last.filter((sample) => sample !== null);
  const [first, latest] = [known[0]?.reconnects ?? {}, known.at(-1)?.reconnects ?? {}];
  const grown = Object.entries(latest)
    .map(([reason, count]) => /** @type {const} */ ([reason, count - (first[reason] ?? 0)]))
    .filter(([reason, count]) => reason !== 'reconnected' && count > 0)
    .sort((one, other) => other[1] - one[1]);
  return grown.map(([reason, count]) => `${reason} ${number(count)}`).join(' · ') || several(0, 'refusal');
}
