// What to ask for on a new socket, and what to fall back to when it is refused: the session itself, then
// one that goes on from the snapshot, then a new one. Each step only ever leads to a later one, so a
// socket sees at most four requests.

import { isAboutToken, mayHaveUsedToken, recovery } from './codes.js';
import { abandon, stop } from './connection.js';
import { LATE_ASK, TOKEN_GRACE } from './limits.js';
import { giveUpUnanswered } from './wishes.js';

/** @typedef {import('./machine.js').Machine} Machine */
/** @typedef {import('./machine.js').Request} Request */
/** @typedef {import('./frames.js').Confirmed} Confirmed */

/** Asks for the best that can be had with what is known. @param {Machine} m @param {number} now */
export function ask(m, now) {
  /** @type {{ request: Request, withToken: boolean }} */
  const asking = { request: 'create', withToken: false };
  if (m.sessionId !== null) {
    const token = tokenToShow(m, now);
    Object.assign(asking, { request: 'reconnect', withToken: token !== null });
    m.send({ event: 'user.reconnect', session_id: m.sessionId, content: position(m, token) });
  } else if (m.snapshot !== null) {
    asking.request = 'restore';
    m.status({ state: 'restoring' });
    const { signed_state } = m.snapshot;
    m.send({ event: 'user.reconnect_with_state', signed_state, content: position(m, null) });
  } else {
    m.send({ event: 'user.create_session', content: m.options.about });
  }
  if (m.asked) m.lateAskUntil = now + LATE_ASK;
  m.asked = true;
  m.phase = { name: 'asking', ...asking };
}

/** The replay is asked for in batches: a frame for each event costs more than the event.
 *  @param {Machine} m @param {string|null} token */
function position(m, token) {
  return {
    last_seq: m.delivery.lastSeq(),
    batch: true,
    ...(m.delivery.epoch !== null && { epoch: m.delivery.epoch }),
    ...(token !== null && { reconnect_token: token }),
  };
}

/**
 * The token, unless showing it would look like a theft: one that was shown before and not answered is
 * taken for a lost reply only for a while, afterwards all tokens are revoked.
 * @param {Machine} m @param {number} now
 */
function tokenToShow(m, now) {
  if (m.token === null) return null;
  if (m.tokenShownAt !== null && now - m.tokenShownAt >= TOKEN_GRACE) {
    m.token = null;
    m.tokenShownAt = null;
    m.save();
  } else {
    m.tokenShownAt ??= now;
  }
  return m.token;
}

/**
 * What was asked for is refused.
 * @param {Machine} m @param {{ request: Request, withToken: boolean }} asked
 * @param {string} code @param {number|null} retryAfter @param {number} now
 */
export function onRequestRefused(m, { request, withToken }, code, retryAfter, now) {
  m.asked = false;
  if (!mayHaveUsedToken(code)) m.tokenShownAt = null;
  const advice = recovery(code);
  if (advice === 'authenticate_again') {
    if (!withToken || !isAboutToken(code)) return stop(m, 'refused', code);
    m.token = null;
    m.save();
    return ask(m, now);
  }
  if (advice !== 'retry_later' && request !== 'create') return lost(m, request, code, now);
  if (advice === 'fix_request' || m.backoff.refused()) return stop(m, 'refused', code);
  abandon(m, retryAfter, false);
}

/**
 * What was asked for, or was attached to, is not there any more: on to the next best.
 * @param {Machine} m @param {Request} request @param {string} code @param {number} now
 */
export function lost(m, request, code, now) {
  if (m.wantsEnd) return stop(m, 'ended');
  m.sessionId = null;
  m.token = null;
  if (request === 'restore') m.snapshot = null;
  m.save();
  if (m.snapshot === null) {
    m.status({ state: 'expired', code });
    if (!m.options.createWhenLost) return stop(m, 'lost', code);
  }
  ask(m, now);
}

/**
 * Attached to a session that was there before, or to a new one.
 * @param {Machine} m @param {Confirmed} confirmed @param {boolean} resumed
 * @param {number} replayFrom @param {number} now
 */
export function onSessionCreated(m, confirmed, resumed, replayFrom, now) {
  if (resumed) {
    m.delivery.resumed(confirmed.epoch, replayFrom, confirmed.gap, now);
    return attach(m, confirmed, 'resumed');
  }
  m.delivery.created(confirmed.epoch, replayFrom);
  m.snapshot = null;
  giveUpUnanswered(m);
  attach(m, confirmed, 'created');
}

/** Attached to a session that goes on from the snapshot, which has thereby done its work.
 *  @param {Machine} m @param {Confirmed} confirmed @param {number} now */
export function onStateRestored(m, confirmed, now) {
  m.delivery.restored(confirmed.epoch, confirmed.gap, now);
  m.snapshot = null;
  attach(m, confirmed, 'restored');
}

/** @param {Machine} m @param {Confirmed} confirmed @param {'created'|'resumed'|'restored'} how */
function attach(m, { session_id, token }, how) {
  m.phase = { name: 'attached' };
  m.sessionId = session_id;
  m.token = token;
  m.tokenShownAt = null;
  m.asked = false;
  m.catchingUp = how !== 'created';
  m.backoff.reset();
  // Told before it is saved: a run that ends in between must be told again.
  m.status({ state: 'connected', session_id, how });
  m.save();
  if (m.wantsEnd) m.send({ event: 'user.end_session', session_id });
  else if (m.wantsState) m.send({ event: 'user.request_state', session_id });
}
