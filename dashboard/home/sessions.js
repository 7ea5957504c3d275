// All sessions that the caller may see: by state, by a text, live. The server looks and sorts; the page has the
// part of what was found that is on the screen, and a little around it.

import * as api from './api.js';
import { h, say } from './dom.js';
import { poll } from './poll.js';
import { Rows } from './rows.js';
import { about, ago, moment, number, several, stateOf } from './words.js';

/** How often what is on the screen is asked for again. */
const EVERY = 2000;

/** Rows asked for above and below the screen. */
const MARGIN = 40;

/** How long nobody must have typed or scrolled before it is asked for. */
const REST = 90;

const STATES = /** @type {const} */ (['attached', 'parked', 'closed', 'expired']);

/** @typedef {import('./app.js').Scene} Scene */

/** @param {HTMLElement} place @param {Scene} scene @param {URLSearchParams} asked */
export function showSessions(place, scene, asked) {
  const view = new Sessions(scene, asked);
  place.append(view.element);
  view.begin();
  return () => view.close();
}

class Sessions {
  search = h('input', {
    type: 'search',
    id: 'search',
    maxLength: 128,
    placeholder: `Id, principal or client${matchMedia('(hover: hover)').matches ? '  ( / )' : ''}`,
    autocomplete: 'off',
    spellcheck: false,
    oninput: () => this.narrow({ text: this.search.value }),
  });
  filters = new Map(['', ...STATES].map((state) => [state, this.filter(state)]));
  status = h('p', { class: 'quiet small', role: 'status' });
  table = h('div', { class: 'table', role: 'table', 'aria-label': 'Sessions', tabindex: 0 }, columns());
  empty = h('p', { class: 'empty quiet', hidden: true });
  rows = new Rows(this.table, {
    make: row,
    fill: (element, index) => fill(element, this.known[index - this.first]),
    moved: (first, last) => this.moved(first, last),
  });
  element = this.build();

  /** @type {api.SessionRecord[]} what is known, from `first` on */
  known = [];
  first = 0;
  /** @type {AbortController|null} */
  asking = null;
  rest = 0;

  /** @param {Scene} scene @param {URLSearchParams} asked */
  constructor(scene, asked) {
    this.scene = scene;
    this.text = asked.get('q') ?? '';
    this.state = asked.get('state') ?? '';
    this.search.value = this.text;
    this.press();
  }

  build() {
    const buttons = [...this.filters.values()].map(({ button }) => button);
    const label = h('label', { for: 'search', class: 'heard' }, 'Search sessions');
    return h(
      'section',
      { class: 'sessions', 'aria-labelledby': 'title' },
      h('h1', { id: 'title', class: 'heard' }, 'Sessions'),
      h(
        'div',
        { class: 'tools' },
        h('div', { class: 'search' }, label, this.search),
        h('div', { class: 'filters', role: 'group', 'aria-label': 'State' }, ...buttons),
        this.status,
      ),
      h('div', { class: 'card listing' }, this.table, this.empty),
    );
  }

  /** Shows which filter is in force. */
  press() {
    for (const [name, { button }] of this.filters) button.setAttribute('aria-pressed', String(name === this.state));
  }

  /** @param {string} state */
  filter(state) {
    const count = h('span', { class: 'count' });
    const button = h(
      'button',
      { type: 'button', onclick: () => this.narrow({ state }) },
      state && h('span', { class: `dot ${state}`, 'aria-hidden': 'true' }),
      state ? state[0].toUpperCase() + state.slice(1) : 'All',
      count,
    );
    return { button, count };
  }

  begin() {
    const failed = (/** @type {unknown} */ error) => this.scene.failed(error);
    this.poll = poll(() => this.ask(), EVERY, failed);
    document.addEventListener('keydown', this.slash);
  }

  /** As in many lists, `/` begins a search. @param {KeyboardEvent} event */
  slash = (event) => {
    if (event.key !== '/' || event.target instanceof HTMLInputElement) return;
    event.preventDefault();
    this.search.focus();
  };

  /** Looks for something else. @param {{ text?: string, state?: string }} what */
  narrow({ text = this.text, state = this.state }) {
    [this.text, this.state] = [text, state];
    this.press();
    const query = new URLSearchParams(
      [
        ['q', text.trim()],
        ['state', state],
      ].filter(([, value]) => value),
    );
    history.replaceState(null, '', `#/sessions${query.size ? `?${query}` : ''}`);
    this.table.scrollTop = 0;
    this.askSoon();
  }

  /** Other rows are on the screen. @param {number} first @param {number} last */
  moved(first, last) {
    const missing = first < this.first || last > this.first + this.known.length;
    if (missing && last > first) this.askSoon();
  }

  askSoon() {
    clearTimeout(this.rest);
    this.rest = setTimeout(() => {
      this.asking?.abort();
      this.poll?.now();
    }, REST);
  }

  async ask() {
    const asking = new AbortController();
    this.asking = asking;
    const [first, last] = this.rows.range();
    const offset = Math.max(0, first - MARGIN);
    const limit = Math.min(1000, Math.max(60, last - offset + MARGIN));
    const what = { q: this.text.trim(), state: this.state, offset, limit };
    try {
      this.show(offset, await api.search(what, asking.signal));
      this.scene.works();
    } catch (error) {
      if (!asking.signal.aborted) throw error;
    }
  }

  /** @param {number} offset @param {api.Found} found */
  show(offset, found) {
    [this.first, this.known] = [offset, found.sessions];
    const { counts } = found;
    const all = STATES.reduce((sum, state) => sum + counts[state], 0);
    for (const [state, { count }] of this.filters) {
      say(count, number(state ? counts[/** @type {keyof api.Counts} */ (state)] : all));
    }
    const sought = this.text.trim();
    say(this.status, `${several(found.found, 'session')}${sought ? ` with “${sought}”` : ''}`);
    this.empty.hidden = found.found > 0;
    const none = all === 0 && !sought;
    if (none !== (this.empty.childElementCount > 0) || this.empty.textContent === '') {
      const play = () => h('a', { href: '/play' }, 'Open the playground');
      this.empty.replaceChildren(...(none ? ['No sessions yet. ', play(), ' to make one.'] : ['Nothing found.']));
    }
    this.rows.resize(found.found);
  }

  close() {
    document.removeEventListener('keydown', this.slash);
    clearTimeout(this.rest);
    this.asking?.abort();
    this.poll?.stop();
    this.rows.close();
  }
}

function columns() {
  const names = ['State', 'Session', 'Principal', 'Client', 'Last activity', 'Events', 'Unacked', 'Reconnects'];
  const cells = names.map((name) => h('div', { role: 'columnheader' }, name));
  return h(
    'div',
    { class: 'head', role: 'rowgroup' },
    h('div', { class: 'row', role: 'row', 'aria-rowindex': 1 }, ...cells),
  );
}

function row() {
  const cell = (/** @type {string} */ name, /** @type {Node[]} */ ...children) =>
    h('div', { role: 'cell', class: name }, ...children);
  return h(
    'div',
    { class: 'row' },
    cell('state', h('span', { class: 'dot', 'aria-hidden': 'true' }), h('span', {})),
    cell('id', h('a', { class: 'mono' })),
    cell('principal'),
    cell('client'),
    cell('activity'),
    cell('events number'),
    cell('unacked number'),
    cell('reconnects number'),
  );
}

/** @param {HTMLElement} element @param {api.SessionRecord|undefined} record not known yet, if nothing */
function fill(element, record) {
  const [state, id, principal, client, activity, events, unacked, reconnects] = element.children;
  element.classList.toggle('unknown', !record);
  const word = record ? stateOf(record) : '';
  const [dot, name] = state.children;
  dot.className = `dot ${word}`;
  say(name, word);
  const link = /** @type {HTMLAnchorElement} */ (id.firstElementChild);
  say(link, record?.session_id ?? '…');
  if (record) link.setAttribute('href', `#/sessions/${encodeURIComponent(record.session_id)}`);
  else link.removeAttribute('href');
  say(principal, record?.principal ?? '');
  say(client, record ? about(record.client) : '');
  say(activity, record ? ago(record.last_activity) : '');
  activity.setAttribute('title', record ? moment(record.last_activity) : '');
  say(events, record ? number(record.last_seq) : '');
  say(unacked, record ? number(Math.min(record.last_seq - record.last_acked_seq, record.buffered)) : '');
  say(reconnects, record ? number(record.reconnect_count) : '');
}
