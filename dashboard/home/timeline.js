// What happened to a session, told once from two sources: the server's memory, which knows comings and goings
// since it was started, and the audit trail, which has every attempt to come back and outlives it.

import { h, s } from './dom.js';
import { moment, several, serverNow, span } from './words.js';

/** @typedef {import('./api.js').Moment} Moment */
/** @typedef {import('./api.js').AuditRecord} AuditRecord */

/**
 * @typedef {{ at: number, kind: 'made'|'attached'|'resumed'|'parked'|'refused'|'ended', title: string,
 *   generation: number|null, details: string[], gap: boolean }} Entry
 */

/** All that is known, oldest first. An attempt that the moments tell of too is told once.
 *  @param {Moment[]} moments @param {AuditRecord[]} audit @param {string} since
 *  @returns {Entry[]} */
export function entries(moments, audit, since) {
  const told = fold(moments);
  const only = audit.filter(
    ({ success, transport, at }) => !success || transport === 'http' || Date.parse(at) < Date.parse(since),
  );
  return [...told, ...only.map(attempt)].sort((one, other) => one.at - other.at);
}

/** A client that came back was attached and then resumed: one entry. @param {Moment[]} moments @returns {Entry[]} */
function fold(moments) {
  /** @type {Entry[]} */
  const entries = [];
  for (const moment of moments) {
    const last = entries.at(-1);
    if (moment.what === 'resumed' && last?.kind === 'attached') resume(last, moment);
    else entries.push(entry(moment, last));
  }
  return entries;
}

/** @param {Entry} entry @param {Moment} moment */
function resume(entry, moment) {
  entry.kind = 'resumed';
  entry.title = entry.title.startsWith('Taken') ? entry.title : 'Resumed';
  const { away_seconds: away, replayed = 0, gap, lost = 0 } = moment;
  if (away !== null && away !== undefined) entry.details.push(`after ${span(away)} away`);
  entry.details.push(replayed ? `${several(replayed, 'event')} replayed` : 'nothing missed');
  if (!gap) return;
  entry.gap = true;
  if (gap.from === null) entry.details.push('gap: the client’s position was not known');
  else entry.details.push(`gap: ${gap.from} to ${gap.to} evicted, ${lost ? several(lost, 'event') + ' lost' : 'covered by the state'}`);
}

/** @param {Moment} moment @param {Entry|undefined} last @returns {Entry} */
function entry(moment, last) {
  const at = Date.parse(moment.at);
  const base = { at, generation: moment.generation || null, details: /** @type {string[]} */ ([]), gap: false };
  const there = last && (last.kind === 'attached' || last.kind === 'resumed');
  switch (moment.what) {
    case 'created':
      return { ...base, kind: 'made', title: 'Made' };
    case 'restored':
      return { ...base, kind: 'made', title: 'Restored from a state' };
    case 'attached': {
      const over = moment.transport ? [`over ${moment.transport}`] : [];
      return { ...base, kind: 'attached', title: there ? 'Taken over' : 'Attached', details: over };
    }
    case 'resumed': {
      const resumed = /** @type {Entry} */ ({ ...base, kind: 'attached', title: 'Resumed' });
      resume(resumed, moment);
      return resumed;
    }
    case 'parked':
      return { ...base, kind: 'parked', title: 'Parked' };
    case 'parked_by_restart':
      return { ...base, kind: 'parked', title: 'Parked', details: ['the server was restarted'] };
    case 'closed':
      return { ...base, kind: 'ended', title: 'Ended' };
    case 'expired':
      return { ...base, kind: 'ended', title: 'Expired' };
    default:
      return { ...base, kind: 'made', title: moment.what };
  }
}

/** @param {AuditRecord} record @returns {Entry} */
function attempt(record) {
  const over = `over ${record.transport}`;
  const base = { at: Date.parse(record.at), generation: null, gap: false };
  if (record.success && record.transport === 'http') {
    return { ...base, kind: 'made', title: 'Renewed by a token', details: [over] };
  }
  if (record.success) return { ...base, kind: 'resumed', title: 'Came back', details: [over, 'before the server was started'] };
  return { ...base, kind: 'refused', title: 'Refused', details: [record.reason, over] };
}

/** The entries as a list, the latest first. @param {Entry[]} entries */
export function list(entries) {
  const items = entries.toReversed().map(({ at, kind, title, generation, details, gap }) =>
    h(
      'li',
      { class: `${kind}${gap ? ' gap' : ''}` },
      h('time', { datetime: new Date(at).toISOString(), class: 'quiet' }, moment(at)),
      h('span', { class: 'mark', 'aria-hidden': 'true' }),
      h('span', {}, h('b', {}, title), generation ? h('span', { class: 'generation' }, `generation ${generation}`) : null, details.length ? ` ${details.join(', ')}` : null),
    ),
  );
  return h('ol', { class: 'moments' }, ...items);
}

const [WIDTH, HEIGHT] = [1000, 34];

/** When somebody was there, as a strip from the first entry to now. @param {Entry[]} entries */
export function strip(entries) {
  if (entries.length === 0) return null;
  const [from, over] = [entries[0].at, entries.findLast((entry) => entry.kind === 'ended')?.at];
  const to = Math.max(over ?? serverNow(), from + 1000);
  const x = (/** @type {number} */ at) => ((at - from) / (to - from)) * WIDTH;
  const spans = stays(entries, to).map(([begin, end]) =>
    s('rect', { class: 'stay', x: x(begin), y: 9, width: Math.max(2, x(end) - x(begin)), height: 16, rx: 2 }),
  );
  const marks = entries.filter((entry) => entry.kind === 'refused' || entry.gap);
  const drawn = marks.map((entry) => s('rect', { class: entry.gap ? 'lost' : 'no', x: x(entry.at) - 1.5, y: 3, width: 3, height: 28 }));
  const label = `Attached ${several(spans.length, 'time')} between ${moment(from)} and ${moment(to)}`;
  const picture = s(
    'svg',
    { class: 'strip', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    s('rect', { class: 'life', x: 0, y: 15, width: WIDTH, height: 4, rx: 2 }),
    ...spans,
    ...drawn,
  );
  const ends = h('div', { class: 'ends quiet small' }, h('span', {}, moment(from)), h('span', {}, over ? moment(over) : 'now'));
  return h('div', {}, picture, ends);
}

/** From when to when somebody was attached. @param {Entry[]} entries @param {number} to @returns {[number, number][]} */
export function stays(entries, to) {
  /** @type {[number, number][]} */
  const stays = [];
  /** @type {number|null} */
  let began = null;
  for (const { kind, at } of entries) {
    if (kind === 'attached' || kind === 'resumed') began ??= at;
    if ((kind === 'parked' || kind === 'ended') && began !== null) {
      stays.push([began, at]);
      began = null;
    }
  }
  return began === null ? stays : [...stays, [began, to]];
}
