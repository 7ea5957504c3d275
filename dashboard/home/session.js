// One session: what it is, what happened to it, what is said in it, and what one can do to it.

import * as api from './api.js';
import { confirm } from './confirm.js';
import { facts, h, say } from './dom.js';
import { Events } from './events.js';
import { audit, gauge, nothing, tokens } from './parts.js';
import { poll } from './poll.js';
import { StatePanel } from './state.js';
import { entries } from './story.js';
import { list, strip } from './timeline.js';
import { about, ago, moment, number, size, stateOf, until } from './words.js';

const EVERY = 1500;

/** What changes seldom is asked for every so many times, and whenever the record says that something happened. */
const SELDOM = 4;

/** @typedef {import('./app.js').Scene} Scene */

/** @param {HTMLElement} place @param {Scene} scene @param {string} id */
export function showSession(place, scene, id) {
  const view = new SessionPage(scene, id);
  place.append(view.element);
  view.begin();
  return () => view.close();
}

class SessionPage {
  dot = h('span', { class: 'dot', 'aria-hidden': 'true' });
  word = h('span', {});
  buttons = {
    cut: h('button', { type: 'button', disabled: true, onclick: () => this.cut() }, 'Cut the connection'),
    state: h('button', { type: 'button', disabled: true, onclick: () => this.ask() }, 'Ask for state'),
    end: h('button', { type: 'button', class: 'danger', disabled: true, onclick: () => this.end() }, 'End session'),
  };
  said = h('div', { class: 'said', role: 'status' });
  facts = h('div', {});
  gauge = gauge();
  strip = h('div', {});
  moments = h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'What happened' });
  tokens = h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Tokens' });
  audit = h('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Attempts to come back' });

  /** @type {api.SessionRecord|null} */
  record = null;
  /** What the record said of comings and goings. */
  trace = '';
  /** What the timeline tells. */
  told = '';
  rounds = 0;

  /** @param {Scene} scene @param {string} id */
  constructor(scene, id) {
    this.scene = scene;
    this.id = id;
    this.events = new Events(id, {
      arrived: (seq) => this.arrived(seq),
      ended: () => this.poll?.now(),
      failed: (error) => this.failed(error),
    });
    this.state = new StatePanel(id, (error) => this.failed(error));
    this.element = h('article', { class: 'session', 'aria-labelledby': 'session-id' }, ...this.parts());
  }

  parts() {
    const { cut, state, end } = this.buttons;
    return [
      h(
        'header',
        {},
        h('a', { class: 'small', href: '#/sessions' }, '← Sessions'),
        h('h1', { id: 'session-id', class: 'mono' }, this.id),
        h('span', { class: 'badge' }, this.dot, this.word),
        h('div', { class: 'actions' }, cut, state, end),
        this.said,
      ),
      panel('Record', 'record', this.facts, this.gauge.element),
      panel('Timeline', 'timeline', this.strip, this.moments),
      this.events.element,
      this.state.element,
      panel('Reconnect tokens', 'tokens', this.tokens),
      panel('Audit trail', 'audit', this.audit),
    ];
  }

  begin() {
    this.poll = poll(
      () => this.look(),
      EVERY,
      (error) => this.failed(error),
    );
  }

  async look() {
    const record = await api.record(this.id);
    const first = this.record === null;
    this.record = record;
    this.scene.works();
    const active = record.status === 'active';
    if (active && first) void this.events.begin();
    this.tell(record);
    if (active) await this.events.askMessages();
    const health = active ? await api.health(this.id).catch(gone) : null;
    this.gauge.show(health, record);
    const trace = [record.status, record.attached, record.generation, record.reconnect_count].join();
    if (trace !== this.trace || this.rounds % SELDOM === 0) await this.lookAround();
    this.trace = trace;
    this.rounds += 1;
    if (!active) this.over();
  }

  /** What happened, and what is known of tokens. */
  async lookAround() {
    const [timeline, { records }] = await Promise.all([api.timeline(this.id), api.audit(this.id)]);
    const told = entries(timeline.moments, records, timeline.since);
    this.strip.replaceChildren(...[strip(told)].filter((drawn) => drawn !== null));
    const text = JSON.stringify(told);
    if (text !== this.told) this.moments.replaceChildren(told.length ? list(told) : nothing('Nothing is known of it.'));
    this.told = text; // who reads in it, or has marked something, is not disturbed
    this.tokens.replaceChildren(tokens(timeline.tokens));
    this.audit.replaceChildren(audit(records));
  }

  /** @param {api.SessionRecord} record */
  tell(record) {
    const state = stateOf(record);
    this.dot.className = `dot ${state}`;
    say(
      this.word,
      record.ended_reason && record.ended_reason !== state ? `${state} (${record.ended_reason})` : state,
    );
    this.buttons.cut.disabled = !record.attached;
    this.buttons.state.disabled = record.status !== 'active';
    this.buttons.end.disabled = record.status !== 'active';
    const life = record.attached
      ? 'not while attached'
      : record.status === 'active'
        ? until(record.expires_at)
        : moment(record.expires_at);
    this.facts.replaceChildren(
      facts([
        ['Principal', record.principal],
        ['Client', about(record.client) || '–'],
        ['Attached over', record.transport ?? '–'],
        ['Generation', number(record.generation)],
        ['Reconnects', number(record.reconnect_count)],
        ['Made', when(record.created_at)],
        ['Last activity', when(record.last_activity)],
        [record.status === 'active' ? 'Expires' : 'Expired or ended', life],
      ]),
    );
  }

  /** Events are known before the record is asked for again. @param {number} seq */
  arrived(seq) {
    if (this.record) this.record.last_seq = Math.max(seq, this.record.last_seq);
    this.gauge.head(seq);
  }

  /** It has ended: nothing will change any more. */
  over() {
    this.poll?.stop();
    this.events.over();
  }

  async cut() {
    await this.act(async () => {
      const { disconnected } = await api.cut(this.id);
      return disconnected ? 'The connection is cut; the session goes on.' : 'Nobody was connected.';
    });
  }

  async ask() {
    await this.act(async () => {
      const state = await api.state(this.id);
      const copy = h(
        'button',
        { type: 'button', class: 'small', onclick: () => void navigator.clipboard?.writeText(state.signed_state) },
        'Copy',
      );
      const { seq, state_size: bytes, expire_after_hours: hours } = state;
      const sentence = `State as of event ${number(seq)}, sealed, ${size(bytes)}, good for ${hours} h.`;
      return h('span', { class: 'exported' }, sentence, ' ', copy, h('code', {}, state.signed_state));
    });
  }

  async end() {
    const sure = await confirm({
      title: 'End this session?',
      text: 'Its events and its state are deleted, and its client is told to stop. This can’t be undone.',
      yes: 'End session',
    });
    if (!sure) return;
    await this.act(async () => {
      this.events.stopping.abort(); // before there is nothing to follow any more
      await api.end(this.id);
      return 'The session has ended.';
    });
  }

  /** Does something, and says what came of it. @param {() => Promise<Node|string>} action */
  async act(action) {
    try {
      this.said.replaceChildren(h('p', { class: 'note' }, await action()));
    } catch (error) {
      if (!(error instanceof api.Refused) || error.isAboutKey) return this.failed(error);
      this.said.replaceChildren(h('p', { class: 'note bad' }, `That was not done. ${error.message}`));
    }
    this.poll?.now();
  }

  /** @param {unknown} error */
  failed(error) {
    if (!(error instanceof api.Refused) || error.isAboutKey || error.status === 0) return this.scene.failed(error);
    const unknown = error.status === 404 || error.status === 400; // what can be no id is that of no session
    if (unknown) this.over();
    if (unknown && !this.record) return this.element.replaceWith(nobody(this.id));
    const sentence = unknown ? 'This session is not known any more.' : error.message;
    this.said.replaceChildren(h('p', { class: 'note bad' }, sentence));
  }

  close() {
    this.poll?.stop();
    this.events.close();
  }
}

/** The page of a session that there is not. @param {string} id */
const nobody = (id) =>
  h(
    'section',
    { class: 'card nobody', 'aria-labelledby': 'nobody-title' },
    h('h1', { id: 'nobody-title' }, 'Unknown session'),
    h('p', { class: 'mono' }, id),
    h(
      'p',
      {},
      'There is no such session, or it is not yours to see. The id may be mistyped, or the session ended so long ago ',
      'that it is forgotten.',
    ),
    h('p', {}, h('a', { href: '#/sessions' }, '← All sessions')),
  );

/** It has ended in between; the next record says so. @param {unknown} error */
function gone(error) {
  if (error instanceof api.Refused && (error.status === 410 || error.status === 404)) return null;
  throw error;
}

/** @param {string} title @param {string} name @param {...Node} children */
function panel(title, name, ...children) {
  const id = `${name}-title`;
  return h(
    'section',
    { class: `card panel ${name}`, 'aria-labelledby': id },
    h('header', {}, h('h2', { id }, title)),
    ...children,
  );
}

/** @param {string} at */
const when = (at) => h('time', { datetime: at, title: moment(at) }, ago(at));
