// Both logs of a session as one: what clients sent to the agent, and the events, each message before the first event
// that answers it. Whatever the rate, the page draws a few times a second and only what is on the screen; the JSON of
// an event is read when it is shown.

import * as api from './api.js';
import { h, say } from './dom.js';
import { answered, woven } from './logs.js';
import { Rows } from './rows.js';
import { moment, number, several } from './words.js';

/** Events kept on the page. */
const KEPT = 2000;

/** The time between two drawings, at least. */
const REST = 100;

/** How long after a stream broke it is asked for again. */
const AGAIN = 1500;

/** @typedef {{ event: string, seq: number, timestamp: string, content?: unknown, metadata?: unknown }} Envelope */
/** @typedef {import('./logs.js').Line} Line */

export class Events {
  count = h('span', { class: 'quiet small' });
  pause = h(
    'button',
    { type: 'button', class: 'small', 'aria-pressed': 'false', onclick: () => this.hold(!this.held) },
    'Pause',
  );
  table = h('div', { class: 'table events', role: 'table', 'aria-label': 'Messages and events', tabindex: 0 }, columns());
  rows = new Rows(this.table, { make: () => this.row(), fill: (row, index) => this.fill(row, index) });
  detail = h('pre', {
    class: 'detail',
    tabindex: 0,
    hidden: true,
    role: 'group',
    'aria-label': 'The entry, whole',
  });
  empty = h('p', { class: 'empty quiet' }, 'Nothing yet.');
  element = h(
    'section',
    { class: 'card panel', 'aria-labelledby': 'events-title' },
    h('header', {}, h('h2', { id: 'events-title' }, 'Messages and events'), this.count, this.pause),
    h('div', { class: 'listing' }, this.table, this.empty),
    this.detail,
  );

  /** @type {api.Sent[]} */
  all = [];
  /** @type {api.Message[]} */
  messages = [];
  /** The last message that is known, the last that an event answers, and whether it is being asked for more. */
  lastMessage = 0;
  lastAnswered = 0;
  asking = false;
  /** @type {Line[]} what the table shows: that of the last drawing, or of when it was stopped */
  shown = [];
  total = 0;
  /** @type {string|null} */
  position = null;
  /** Whether it was stopped, and what the total was then. */
  held = false;
  heldAt = 0;
  /** Whether one of them is shown whole. */
  opened = false;
  timer = 0;
  stopping = new AbortController();

  /** @param {string} id
   *  @param {{ arrived: (seq: number) => void, ended: () => void, failed: (error: unknown) => void }} told */
  constructor(id, told) {
    this.id = id;
    this.told = told;
    this.table.addEventListener('wheel', () => this.scrolled(), { passive: true });
    this.table.addEventListener('touchmove', () => this.scrolled(), { passive: true });
  }

  row() {
    const cell = (/** @type {string} */ name, /** @type {Node[]} */ ...children) =>
      h('div', { role: 'cell', class: name }, ...children);
    const open = h('button', { type: 'button', class: 'plain', onclick: () => this.open(row.index) });
    const parts = [cell('seq', open), cell('when'), cell('name mono'), cell('answers'), cell('content mono')];
    const row = /** @type {import('./rows.js').Row} */ (h('div', { class: 'row' }, ...parts));
    return row;
  }

  /** @param {HTMLElement} row @param {number} index */
  fill(row, index) {
    const line = this.shown[index];
    const [seq, when, name, answers, content] = row.children;
    row.classList.toggle('gap', line.sent?.kind === 'gap');
    row.classList.toggle('asked', line.message !== undefined);
    const event = line.message ? { ...line.message, seq: 0 } : read(/** @type {api.Sent} */ (line.sent));
    const button = /** @type {HTMLElement} */ (seq.firstElementChild);
    say(button, line.message ? `in ${line.message.in_seq}` : event.seq ? `${event.seq}` : '–');
    say(when, event.timestamp ? moment(event.timestamp) : '');
    say(name, event.event);
    say(answers, line.sent && answered(line.sent) ? `in ${answered(line.sent)}` : '');
    say(content, brief(event.content));
  }

  /** Asks for messages that came since. */
  async askMessages() {
    if (this.asking || this.lastMessage === Infinity || this.stopping.signal.aborted) return;
    this.asking = true;
    try {
      for (;;) {
        const { messages, last_in_seq: last } = await api.messages(this.id, this.lastMessage);
        this.lastMessage = Math.max(this.lastMessage, last);
        if (messages.length === 0) return;
        this.messages = [...this.messages, ...messages].slice(-KEPT);
        this.timer ||= setTimeout(() => this.draw(), REST);
      }
    } catch (error) {
      const busy = error instanceof api.Refused && (error.status === 0 || error.status >= 429);
      if (!(error instanceof api.Refused) || busy || error.isAboutKey) throw error;
      this.lastMessage = Infinity; // an MCP session has other messages, and one that has ended has none
    } finally {
      this.asking = false;
    }
  }

  /** Follows until it is closed. */
  async begin() {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      try {
        for await (const sent of api.follow(this.id, this.position, signal)) this.take(sent);
        if (!signal.aborted) this.told.ended();
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof api.Refused && error.status !== 0) {
          this.told.failed(error);
          if (error.status === 404 || error.status === 410 || error.isAboutKey) return;
        }
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }

  /** @param {api.Sent[]} sent */
  take(sent) {
    const last = sent[sent.length - 1];
    this.position = last.position;
    this.total += sent.filter(({ kind }) => kind === 'event').length; // a gap is none
    this.all.push(...sent);
    if (this.all.length > KEPT * 2) this.all = this.all.slice(-KEPT); // what is drawn stays until the next drawing
    this.told.arrived(last.seq);
    this.lastAnswered = Math.max(this.lastAnswered, ...sent.map(answered));
    if (this.lastAnswered > this.lastMessage) this.askMessages().catch((error) => this.told.failed(error));
    this.timer ||= setTimeout(() => this.draw(), REST);
  }

  draw() {
    this.timer = 0;
    this.empty.hidden = this.all.length + this.messages.length > 0;
    const messages = this.messages.length ? `${several(this.messages.length, 'message')}, ` : '';
    say(
      this.count,
      this.held ? `${number(this.total - this.heldAt)} more since then` : messages + several(this.total, 'event'),
    );
    if (this.held) return;
    this.shown = woven(this.all, this.messages);
    this.rows.resize(this.shown.length);
    this.rows.toEnd();
  }

  /** Whoever scrolls up wants to read: what is there stays there. */
  scrolled() {
    requestAnimationFrame(() => {
      if (!this.held && !this.rows.isAtEnd) this.hold(true);
      else if (this.held && this.rows.isAtEnd && !this.opened) this.hold(false);
    });
  }

  /** Stops or goes on. @param {boolean} held */
  hold(held) {
    this.held = held;
    this.heldAt = this.total;
    this.shown = woven(this.all, this.messages);
    this.pause.setAttribute('aria-pressed', String(held));
    say(this.pause, held ? 'Follow' : 'Pause');
    if (!held) this.show(null);
    this.rows.resize(this.shown.length);
    this.draw();
  }

  /** Shows the whole of an event. @param {number|undefined} index */
  open(index) {
    if (index === undefined) return;
    if (!this.held) this.hold(true);
    this.show(this.shown[index]);
  }

  /** @param {Line|null} line */
  show(line) {
    this.opened = line !== null;
    this.detail.hidden = line === null;
    if (line) say(this.detail, JSON.stringify(line.message ?? JSON.parse(line.sent?.data ?? 'null'), null, 2));
  }

  /** The session has ended. */
  over() {
    this.stopping.abort();
    say(this.empty, 'A session that has ended has no messages and no events.');
  }

  close() {
    clearTimeout(this.timer);
    this.stopping.abort();
    this.rows.close();
  }
}

function columns() {
  const cells = ['Seq', 'Time', 'Event', 'Answers', 'Content'].map((name) => h('div', { role: 'columnheader' }, name));
  return h(
    'div',
    { class: 'head', role: 'rowgroup' },
    h('div', { class: 'row', role: 'row', 'aria-rowindex': 1 }, ...cells),
  );
}

/** @type {WeakMap<api.Sent, Envelope>} */
const READ = new WeakMap();

/** @param {api.Sent} sent @returns {Envelope} */
function read(sent) {
  const known = READ.get(sent);
  if (known) return known;
  const data = JSON.parse(sent.data);
  const event = sent.kind === 'gap' ? { event: 'gap', seq: 0, timestamp: '', content: missing(data) } : data;
  READ.set(sent, event);
  return event;
}

/** @param {api.Gap} gap */
const missing = (gap) =>
  gap.from === null ? 'Events are missing' : `${gap.from} to ${gap.to} are not held any more`;

/** @param {unknown} content */
function brief(content) {
  if (content === undefined || content === null) return '';
  const text = typeof content === 'string' ? content : JSON.stringify(content);
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}
