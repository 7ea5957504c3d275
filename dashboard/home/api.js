// The server's HTTP interface, as whoever has given this tab a key.

import { call as ask } from '/assets/shared/key.js';

/** @typedef {{ session_id: string, status: string, ended_reason: string|null, attached: boolean,
 *    transport: string|null, client: Record<string, unknown>, principal: string, created_at: string,
 *    last_activity: string, generation: number, reconnect_count: number, last_seq: number,
 *    last_acked_seq: number, buffered: number, expires_at: string }} SessionRecord */
/** @typedef {{ attached: number, parked: number, closed: number, expired: number }} Counts */
/** @typedef {{ sessions: SessionRecord[], found: number, counts: Counts }} Found */
/** @typedef {{ buffer_size: number, buffer_bytes: number, buffer_usage_percent: number,
 *    oldest_event_seq: number|null, newest_event_seq: number|null, unacked_events: number }} Health */
/** @typedef {{ from: number|null, to: number|null, reason: string, lost: {from: number, to: number}|null }} Gap */
/** @typedef {{ at: string, what: string, generation: number, transport?: string|null, away_seconds?: number|null,
 *    replayed?: number, lost?: number, gap?: Gap|null, status?: string, stderr?: string[]|null }} Moment */
/** @typedef {{ state: string, expires_at: string, used_at: string|null }} TokenTimes */
/** @typedef {{ since: string, moments: Moment[], tokens: TokenTimes[] }} Timeline */
/** @typedef {{ at: string, session_id: string|null, principal: string, address: string|null, transport: string,
 *    action: string, success: boolean, reason: string }} AuditRecord */
/** @typedef {{ at_ms: number, attached: number, parked: number, reconnects: Record<string, number>,
 *    away: number[], replayed: number, lost: number, commits: number[]|null, buffered_bytes: number }} Sample */
/** @typedef {{ interval_seconds: number, away_bounds: number[], commit_bounds: number[]|null, samples: Sample[],
 *    present: Sample }} WholeServer */
/** @typedef {{ server_version: string, started_at: string, now: string, authentication: boolean,
 *    caller: { principal: string, admin: boolean }|null, whole_server: WholeServer|null }} Overview */
/** @typedef {{ signed_state: string, state: Record<string, unknown>, state_size: number, snapshot_time: string,
 *    expire_after_hours: number, seq: number }} State */
/** @typedef {{ in_seq: number, message_id: string|null, event: string, content: unknown, timestamp: string,
 *    covered: boolean }} Message what a client sent to the agent */

/** The server's answer was no. `status` 0 means that there was none. */
export class Refused extends Error {
  /** @param {number} status @param {string} sentence */
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }

  /** Whether the caller must say who they are. */
  get isAboutKey() {
    return this.status === 401;
  }
}

/** @param {string} path @param {RequestInit} [init] */
async function call(path, init = {}) {
  let response;
  try {
    response = await ask(path, { ...init, cache: 'no-store' });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Refused(0, 'The server does not answer.');
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Refused(response.status, body.detail ?? `The server answered ${response.status}.`);
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
const get = async (path, signal) => (await call(path, { signal })).json();

/** @param {string} method @param {string} path @returns {Promise<any>} */
const send = async (method, path) => (await call(path, { method })).json();

/** @param {string} id */
const at = (id) => `/api/sessions/${encodeURIComponent(id)}`;

/** @param {number} [after] @returns {Promise<Overview>} */
export const overview = (after) => get(`/api/overview${after === undefined ? '' : `?after_ms=${after}`}`);

/** @param {{ q?: string, state?: string, offset?: number, limit?: number }} what @param {AbortSignal} [signal]
 *  @returns {Promise<Found>} */
export function search(what, signal) {
  const given = Object.entries(what).filter(([, value]) => value !== undefined && value !== '');
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return get(`/api/sessions/search?${query}`, signal);
}

/** @param {string} id @returns {Promise<SessionRecord>} */
export const record = (id) => get(at(id));
/** @param {string} id @returns {Promise<Health>} */
export const health = (id) => get(`${at(id)}/health`);
/** @param {string} id @returns {Promise<Timeline>} */
export const timeline = (id) => get(`${at(id)}/timeline`);
/** @param {string} id @returns {Promise<{ records: AuditRecord[], next: number|null }>} */
export const audit = (id) => get(`/api/audit?limit=50&session_id=${encodeURIComponent(id)}`);
/** Messages after a number, a page of them. @param {string} id @param {number} after
 *  @returns {Promise<{ messages: Message[], last_in_seq: number }>} */
export const messages = (id, after) => get(`${at(id)}/messages?after=${after}`);
/** @param {string} id @returns {Promise<{ disconnected: boolean }>} */
export const cut = (id) => send('POST', `${at(id)}/disconnect`);
/** @param {string} id @returns {Promise<State>} */
export const state = (id) => send('POST', `${at(id)}/state`);
/** @param {string} id @returns {Promise<SessionRecord>} */
export const end = (id) => send('DELETE', at(id));

/**
 * The events of a session as they come, from the oldest that is held or from after a position. It looks on and
 * attaches nothing. Ends when the session does.
 *
 * @param {string} id
 * @param {string|null} position the `id` of the last event that was seen
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Sent[]>} what came together
 */
export async function* follow(id, position, signal) {
  const headers = { accept: 'text/event-stream', ...(position ? { 'last-event-id': position } : {}) };
  const response = await call(`${at(id)}/events`, { headers, signal });
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split('\n\n');
    rest = /** @type {string} */ (blocks.pop());
    const sent = blocks.map(parse).filter((one) => one !== null);
    if (sent.length) yield sent;
  }
}

/** @typedef {{ kind: string, position: string, seq: number, data: string }} Sent an event's JSON is read when it
 *    is shown, which most are not */

/** @param {string} block @returns {Sent|null} */
function parse(block) {
  let [kind, position, data] = ['event', '', ''];
  for (const line of block.split('\n')) {
    if (line.startsWith('data: ')) data = line.slice(6);
    else if (line.startsWith('id: ')) position = line.slice(4);
    else if (line.startsWith('event: ')) kind = line.slice(7);
  }
  return data === '' ? null : { kind, position, seq: Number(position.slice(position.lastIndexOf(':') + 1)), data };
}
