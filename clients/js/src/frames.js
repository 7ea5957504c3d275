// Frames of the server, read into what the machine understands, and frames of the client. Whatever a
// broken server sends ends here: a frame that makes no sense is read as nothing, never as half a meaning.

import { known } from './codes.js';
import { HEARTBEAT_INTERVAL, MAX_ATTEMPTS, MAX_RETRY_AFTER } from './limits.js';

/** @typedef {import('./delivery.js').Gap} Gap */
/** @typedef {import('./delivery.js').Range} Range */
/**
 * The envelope of the protocol.
 * @typedef {{ event: string, session_id?: string, seq?: number, event_id?: string, timestamp?: string,
 *   content?: any, metadata?: any, [member: string]: any }} Frame
 */
/** @typedef {{ session_id: string, epoch: string, gap: Gap|null, token: string|null }} Confirmed */
/**
 * What a frame says.
 * @typedef {{ type: 'connected', backoff: number[], maxAttempts: number, heartbeatInterval: number }
 *   | { type: 'session_created', confirmed: Confirmed, resumed: boolean, replayFrom: number }
 *   | { type: 'state_restored', confirmed: Confirmed }
 *   | { type: 'event', seq: number, frame: Frame }
 *   | { type: 'gap', gap: Gap }
 *   | { type: 'state_exported', signed_state: string, seq: number, frame: Frame }
 *   | { type: 'heartbeat', head: number, token: string|null }
 *   | { type: 'accepted', message_id: string, in_seq: number }
 *   | { type: 'refused', code: string, retryAfter: number|null, message_id: string|null, message: string }
 *   | { type: 'replay_complete'|'superseded'|'draining'|'session_ended'|'authenticated' }} Told
 */

/**
 * Reads a frame: what it says, several things if it is a batch, nothing if it makes no sense or belongs
 * to a later version. Whatever has a `seq` is an event of the out log, whatever its name.
 * @param {unknown} frame parsed JSON
 * @returns {Told[]}
 */
export function read(frame) {
  try {
    if (!isObject(frame) || typeof frame.event !== 'string') return [];
    if (frame.seq !== undefined && frame.seq !== null) return [event(/** @type {any} */ (frame))];
    const told = READERS[frame.event]?.(frame, object(frame.metadata)) ?? [];
    return Array.isArray(told) ? told : [told];
  } catch (error) {
    if (error instanceof BadFrame) return [];
    throw error;
  }
}

/** `retry_after_ms` in the reason of a close frame. @param {string} reason @returns {number|null} */
export function retryAfterIn(reason) {
  try {
    return millis(object(JSON.parse(reason)).retry_after_ms);
  } catch {
    return null;
  }
}

class BadFrame extends Error {}

/** @type {Record<string, (frame: any, metadata: any) => Told|Told[]>} */
const READERS = {
  'system.connected': ({ content }) => connected(object(content)),
  'system.authenticated': () => ({ type: 'authenticated' }),
  'system.heartbeat': (_, { seq, reconnect_token }) => ({
    type: 'heartbeat',
    head: seq === undefined || seq === null ? 0 : number(seq, 0),
    token: text(reconnect_token),
  }),
  'system.accepted': ({ content }) => ({
    type: 'accepted',
    message_id: need(text(object(content).message_id)),
    in_seq: number(object(content).in_seq, 0),
  }),
  'system.notice': (frame, metadata) => notice(frame, metadata),
  'agent.session_created': ({ session_id, content }, metadata) => ({
    type: 'session_created',
    confirmed: confirmed(session_id ?? object(content).session_id, metadata),
    resumed: metadata.resumed === true,
    replayFrom: number(metadata.replay_from, 1),
  }),
  'agent.state_restored': (_, metadata) => ({
    type: 'state_restored',
    confirmed: confirmed(metadata.new_session_id, metadata),
  }),
  'agent.state_exported': (frame, { signed_state, seq }) => ({
    type: 'state_exported',
    signed_state: need(text(signed_state)),
    seq: number(seq, 0),
    frame,
  }),
  'agent.error': refused,
  'error.recovery_failed': refused,
  'agent.session_ended': () => ({ type: 'session_ended' }),
};

/** @param {Frame} frame @returns {Told} */
function event(frame) {
  return { type: 'event', seq: number(frame.seq, 1), frame };
}

/** @param {any} content @returns {Told} */
function connected(content) {
  const { heartbeat_interval_seconds, reconnect_backoff, max_reconnect_attempts } = content;
  const steps = Array.isArray(reconnect_backoff) ? reconnect_backoff : [];
  return {
    type: 'connected',
    backoff: steps.map(seconds).filter((step) => step !== null),
    maxAttempts: Number.isInteger(max_reconnect_attempts) ? max_reconnect_attempts : MAX_ATTEMPTS,
    heartbeatInterval: seconds(heartbeat_interval_seconds) ?? HEARTBEAT_INTERVAL,
  };
}

/** @param {unknown} session_id @param {any} metadata @returns {Confirmed} */
function confirmed(session_id, { epoch, gap, reconnect_token }) {
  const ends = gap === undefined || gap === null ? null : readGap(object(gap));
  return {
    session_id: need(text(session_id)),
    epoch: need(text(epoch)),
    // A confirmation does not say what the state makes up for: all of it is taken for lost.
    gap: ends?.reason === 'evicted' ? { ...ends, lost: { from: ends.from, to: ends.to } } : ends,
    token: text(reconnect_token),
  };
}

/** @param {any} frame @param {any} metadata @returns {Told|Told[]} */
function notice({ content }, metadata) {
  switch (metadata.code) {
    case 'gap':
      return { type: 'gap', gap: readGap(metadata) };
    case 'replay':
      return batch(object(content).events);
    case 'replay_complete':
    case 'superseded':
    case 'draining':
      return { type: metadata.code };
    default:
      return [];
  }
}

/**
 * Replayed events, several in a frame. One that makes no sense spoils the batch: the hole it leaves
 * would only be noticed at the next one.
 * @param {unknown} events
 */
function batch(events) {
  if (!Array.isArray(events)) throw new BadFrame();
  return events.map((frame) => {
    if (!isObject(frame) || typeof frame.event !== 'string') throw new BadFrame();
    return event(/** @type {any} */ (frame));
  });
}

/** Where the server can't say what is missing, the ends are null. @param {any} ends @returns {Gap} */
function readGap({ from, to, lost }) {
  if ((from ?? null) === null && (to ?? null) === null) {
    return { reason: 'position_unknown', from: null, to: null, lost: null };
  }
  return { reason: 'evicted', ...range({ from, to }), lost: lost ? range(object(lost)) : null };
}

/** @param {any} metadata @param {any} frame @returns {Told} */
function refused(frame, metadata) {
  const retry = metadata.retry_after_ms;
  return {
    type: 'refused',
    code: known(metadata.error_code),
    retryAfter: retry === undefined || retry === null ? null : millis(retry),
    message_id: text(metadata.message_id),
    message: text(frame.content) ?? '',
  };
}

/** @param {any} ends @returns {Range} */
function range(ends) {
  const [from, to] = [number(ends.from, 1), number(ends.to, 1)];
  if (from > to) throw new BadFrame();
  return { from, to };
}

/** @param {unknown} value @param {number} least */
function number(value, least) {
  if (!Number.isSafeInteger(value) || Number(value) < least) throw new BadFrame();
  return Number(value);
}

/** @param {unknown} value @returns {number|null} */
function millis(value) {
  const given = Number.isFinite(value) && Number(value) >= 0;
  return given ? Math.min(Number(value), MAX_RETRY_AFTER) : null;
}

/** @param {unknown} value @returns {number|null} */
const seconds = (value) => (typeof value === 'number' ? millis(value * 1000) : null);

/** @param {unknown} value @returns {string|null} */
const text = (value) => (typeof value === 'string' && value !== '' ? value : null);

/** @template T @param {T|null} value @returns {T} */
function need(value) {
  if (value === null) throw new BadFrame();
  return value;
}

/** @param {unknown} value @returns {value is Record<string, unknown>} */
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** @param {unknown} value @returns {any} */
const object = (value) => (isObject(value) ? value : {});
