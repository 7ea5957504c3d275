// The smaller parts of a session's page: the gauge of its buffer, its tokens, its audit trail.

import { facts, h, say } from './dom.js';
import { moment, number, several, size, until } from './words.js';

/** @typedef {import('./api.js').SessionRecord} SessionRecord */
/** @typedef {import('./api.js').Health} Health */
/** @typedef {import('./api.js').TokenTimes} TokenTimes */
/** @typedef {import('./api.js').AuditRecord} AuditRecord */

/** @param {string} sentence */
export const nothing = (sentence) => h('p', { class: 'empty quiet' }, sentence);

/** How full the buffer is. */
export function gauge() {
  const bar = h('div', { class: 'fill' });
  const meter = h(
    'div',
    {
      class: 'meter',
      role: 'meter',
      'aria-label': 'Buffer',
      'aria-valuemin': 0,
      'aria-valuemax': 100,
      'aria-valuenow': 0,
    },
    bar,
  );
  const percent = h('b', {}, '–');
  const held = h('span', {}, '–');
  const head = h('span', {}, '–');
  const unacked = h('span', {}, '–');
  const element = h(
    'div',
    { class: 'gauge' },
    h('p', {}, 'Buffer ', percent),
    meter,
    facts([
      ['Held', held],
      ['Newest event', head],
      ['Not acked', unacked],
    ]),
  );
  return {
    element,
    /** @param {number} seq */
    head: (seq) => say(head, number(seq)),
    /** @param {Health|null} health @param {SessionRecord} record */
    show: (health, record) => {
      const used = Math.min(100, health?.buffer_usage_percent ?? 0);
      bar.style.width = `${used}%`;
      bar.classList.toggle('high', used >= 90);
      meter.setAttribute('aria-valuenow', String(Math.round(used)));
      say(percent, `${health ? health.buffer_usage_percent.toFixed(used < 10 ? 1 : 0) : 0} %`);
      say(held, health ? `${several(health.buffer_size, 'event')}, ${size(health.buffer_bytes)}` : 'nothing');
      say(head, number(record.last_seq));
      say(unacked, number(health?.unacked_events ?? 0));
    },
  };
}

/** @param {TokenTimes[]} known */
export function tokens(known) {
  if (known.length === 0) return nothing('None.');
  const items = known.map(({ state, expires_at: expires, used_at: used }) =>
    h(
      'li',
      { class: state },
      h('span', { class: 'badge' }, state),
      used ? ` ${moment(used)}` : state === 'live' ? ` expires ${until(expires)}` : ` ${moment(expires)}`,
    ),
  );
  return h('ul', { class: 'plainlist' }, ...items);
}

/** @param {AuditRecord[]} records */
export function audit(records) {
  if (records.length === 0) return nothing('No attempts to come back.');
  const names = ['Time', 'Outcome', 'Over', 'From', 'By'];
  const rows = records.map((record) =>
    h(
      'tr',
      {},
      h('td', {}, moment(record.at)),
      h(
        'td',
        {},
        h('span', { class: record.success ? 'good' : 'bad' }, record.reason),
        record.action === 'reconnect' ? null : ` (${record.action})`,
      ),
      h('td', {}, record.transport),
      h('td', {}, record.address ?? '–'),
      h('td', {}, record.principal),
    ),
  );
  return h(
    'table',
    {},
    h('thead', {}, h('tr', {}, ...names.map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', {}, ...rows),
  );
}
