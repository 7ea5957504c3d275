// What happened to a session, told once from two sources: the server's timeline of comings and goings, and
// the audit trail, which has every attempt to come back and reaches further back. Pure: what is
// drawn of it is in `timeline.js`.

import { several, span } from './words.js';

/** @typedef {import('./api.js').Moment} Moment */
/** @typedef {import('./api.js').AuditRecord} AuditRecord */

/**
 * @typedef {{ at: number, kind: 'made'|'attached'|'resumed'|'parked'|'died'|'refused'|'ended', title: string,
 *   generation: number|null, details: string[], gap: boolean, lines?: string[] }} Entry
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
    else entries.push(entry(moment, entries.findLast(({ kind }) => kind !== 'died')));
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
  else
    entry.details.push(
      `gap: ${gap.from} to ${gap.to} evicted, ${lost ? several(lost, 'event') + ' lost' : 'covered by the state'}`,
    );
}

/** @param {Moment} moment @param {Entry|undefined} last the last coming or going @returns {Entry} */
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
    case 'agent_died':
      return { ...base, kind: 'died', title: 'Agent died', details: died(moment), lines: moment.stderr ?? [] };
    case 'closed':
      return { ...base, kind: 'ended', title: 'Ended' };
    case 'expired':
      return { ...base, kind: 'ended', title: 'Expired' };
    default:
      return { ...base, kind: 'made', title: moment.what };
  }
}

/** @param {Moment} moment */
const died = ({ status, stderr }) => [
  ...(status ? [status] : []),
  ...(stderr === null ? ['its last words are shown to keys with admin rights'] : []),
];

/** @param {AuditRecord} record @returns {Entry} */
function attempt(record) {
  const over = `over ${record.transport}`;
  const base = { at: Date.parse(record.at), generation: null, gap: false };
  if (record.success && record.transport === 'http') {
    return { ...base, kind: 'made', title: 'Renewed by a token', details: [over] };
  }
  if (record.success)
    return { ...base, kind: 'resumed', title: 'Came back', details: [over, 'before the timeline begins'] };
  return { ...base, kind: 'refused', title: 'Refused', details: [record.reason, over] };
}

/** From when to when somebody was attached.
 *  @param {Entry[]} entries @param {number} to @returns {[number, number][]} */
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
