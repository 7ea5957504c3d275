// The life of a socket: opened, silent, closed, waited for; and the end of the client.

import { MESSAGE_TOO_BIG, SESSION_ENDED, SUPERSEDED, meansStop } from './codes.js';
import { SILENT_INTERVALS } from './limits.js';
import { NOTHING_SAVED } from './machine.js';
import { ask } from './recover.js';
import { giveUp, giveUpAll } from './wishes.js';

/** @typedef {import('./machine.js').Machine} Machine */
/** @typedef {import('./machine.js').StopReason} StopReason */

/** @param {Machine} m */
export function connect(m) {
  m.phase = { name: 'connecting' };
  m.status({ state: 'connecting' });
  m.put({ type: 'connect' });
}

/** @param {Machine} m @param {number} now */
export function onOpened(m, now) {
  if (m.phase.name !== 'connecting') return;
  m.heardAt = now;
  ask(m, now);
}

/** @param {Machine} m @param {number} random @param {number} now */
export function onConnectFailed(m, random, now) {
  if (m.phase.name === 'connecting') wait(m, null, random, now);
}

/**
 * @param {Machine} m @param {number|null} code @param {number|null} retryAfter
 * @param {number} random @param {number} now
 */
export function onClosed(m, code, retryAfter, random, now) {
  const { phase } = m;
  if (phase.name === 'waiting' || phase.name === 'stopped') return;
  if (phase.name === 'asking' || phase.name === 'attached') giveUpWhatIsTooBig(m, code);
  if (phase.name === 'attached') detached(m);
  const closing = phase.name === 'closing' ? phase : { retryAfter: null, atOnce: false };
  m.phase = { name: 'closing', retryAfter, atOnce: closing.atOnce }; // no socket is left to close
  if (code === SUPERSEDED && isLateAsk(m, now)) return wait(m, retryAfter, random, now);
  if (code !== null && meansStop(code)) return stopByCode(m, code);
  const asked = later(retryAfter, closing.retryAfter);
  if (asked === null && closing.atOnce) connect(m);
  else wait(m, asked, random, now);
}

/** Without this, what does not fit into a frame would be sent, and end the connection, for ever.
 *  @param {Machine} m @param {number|null} code */
function giveUpWhatIsTooBig(m, code) {
  if (code !== MESSAGE_TOO_BIG) return;
  if (m.phase.name === 'asking' && m.phase.request === 'restore') {
    m.snapshot = null;
    m.save();
  }
  const largest = m.outbox.largestOnItsWay();
  if (largest !== null) giveUp(m, largest, 'refused', 'MESSAGE_TOO_LARGE');
}

/** Waits before the next attempt. A session that is to be ended and never came to be needs none.
 *  @param {Machine} m @param {number|null} retryAfter @param {number} random @param {number} now */
function wait(m, retryAfter, random, now) {
  if (m.wantsEnd && m.sessionId === null) return stop(m, 'ended');
  const { attempt, delay } = m.backoff.next(retryAfter, random);
  m.phase = { name: 'waiting', until: now + delay, notBefore: now + (retryAfter ?? 0) };
  m.status({ state: 'reconnecting', attempt, delay_ms: delay });
}

/** The machine was asleep or offline. Waiting on is useless; and a server that was due to be heard of
 *  by now is not waited for a second time. @param {Machine} m @param {number} now */
export function onWake(m, now) {
  const { phase } = m;
  if (phase.name === 'waiting') {
    phase.until = Math.min(phase.until, Math.max(phase.notBefore, now));
  } else if (phase.name === 'asking' || phase.name === 'attached') {
    const missed = m.heartbeatInterval > 0 && now - m.heardAt > m.heartbeatInterval;
    if (missed) abandon(m, null, true);
  }
}

/** The server lives. @param {Machine} m @param {number} now */
export function onHeard(m, now) {
  if (m.phase.name === 'asking' || m.phase.name === 'attached') m.heardAt = now;
}

/** When a server that says nothing counts as gone. @param {Machine} m @returns {number|null} */
export function silenceEnds(m) {
  return m.heartbeatInterval > 0 ? m.heardAt + m.heartbeatInterval * SILENT_INTERVALS : null;
}

/** @param {Machine} m @param {number} now */
export function isSilent(m, now) {
  const end = silenceEnds(m);
  return end !== null && end <= now;
}

/** Gives this socket up; another is tried when it is closed.
 *  @param {Machine} m @param {number|null} retryAfter @param {boolean} atOnce */
export function abandon(m, retryAfter, atOnce) {
  if (m.phase.name === 'attached') detached(m);
  m.phase = { name: 'closing', retryAfter, atOnce };
  m.put({ type: 'close' });
}

/** @param {Machine} m */
function detached(m) {
  m.outbox.disconnected();
  m.save();
  m.status({ state: 'connection_lost' });
}

/** Another connection has the session: somebody else's, or an earlier one of ours.
 *  @param {Machine} m @param {number} now */
export function onSuperseded(m, now) {
  if (isLateAsk(m, now)) abandon(m, null, false);
  else stop(m, 'superseded');
}

/**
 * Whether we may have been superseded by ourselves: what was asked on a socket that we gave up can
 * reach the server after what was asked on the next. Nobody reads that connection, so stopping would
 * leave the session to nobody. Told once: if it is another client after all, that one stays.
 * @param {Machine} m @param {number} now
 */
function isLateAsk(m, now) {
  const until = m.lateAskUntil;
  m.lateAskUntil = null;
  return until !== null && now <= until;
}

/** @param {Machine} m @param {number} code */
function stopByCode(m, code) {
  if (code === SUPERSEDED) stop(m, 'superseded');
  else if (code === SESSION_ENDED) stop(m, 'ended');
  else stop(m, 'closed', code);
}

/**
 * The end. Messages that were not answered for are told; what was saved stays, unless the session was
 * ended.
 * @param {Machine} m @param {StopReason} reason @param {string|number} [code]
 */
export function stop(m, reason, code) {
  giveUpAll(m);
  if (reason === 'ended') forget(m);
  else m.save();
  if (m.phase.name === 'asking' || m.phase.name === 'attached') m.put({ type: 'close' });
  m.phase = { name: 'stopped' };
  m.status(code === undefined ? { state: 'stopped', reason } : { state: 'stopped', reason, code });
}

/** @param {Machine} m */
function forget(m) {
  m.sessionId = null;
  m.token = null;
  m.snapshot = null;
  m.saved = NOTHING_SAVED;
  m.put({ type: 'save', saved: NOTHING_SAVED });
}

/** @param {number|null} a @param {number|null} b */
const later = (a, b) => (a === null ? b : b === null ? a : Math.max(a, b));
