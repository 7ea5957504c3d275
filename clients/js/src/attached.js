// What comes in from the server: the answer to what was asked for, and everything after it.

import { isAboutState, mayHaveEntered, recovery } from './codes.js';
import { abandon, onSuperseded, stop } from './connection.js';
import { KNOWN, NEW_HOLE, OLD_HOLE, TELL } from './delivery.js';
import { read } from './frames.js';
import { lost, onRequestRefused, onSessionCreated, onStateRestored } from './recover.js';
import { giveUp } from './wishes.js';

/** @typedef {import('./machine.js').Machine} Machine */
/** @typedef {import('./frames.js').Told} Told */
/** @typedef {import('./delivery.js').Gap} Gap */
/** @typedef {Extract<Told, { type: 'refused' }>} Refusal */

/**
 * A frame came. After each thing it says, what is due is done: a batch is acked like single events.
 * @param {Machine} m @param {unknown} frame @param {number} now @param {() => void} doWhatIsDue
 */
export function onFrame(m, frame, now, doWhatIsDue) {
  for (const told of read(frame)) {
    if (m.phase.name === 'asking') onAnswer(m, m.phase, told, now);
    else if (m.phase.name === 'attached') onAttached(m, told, now);
    doWhatIsDue();
  }
}

/**
 * Only a confirmation or a refusal is an answer; everything else is not meant for us yet.
 * @param {Machine} m @param {Extract<import('./machine.js').Phase, { name: 'asking' }>} asked
 * @param {Told} told @param {number} now
 */
function onAnswer(m, asked, told, now) {
  switch (told.type) {
    case 'session_created':
      return onSessionCreated(m, told.confirmed, told.resumed, told.replayFrom, now);
    case 'state_restored':
      return onStateRestored(m, told.confirmed, now);
    case 'refused':
      if (told.message_id !== null) return;
      return onRequestRefused(m, asked, told.code, told.retryAfter, now);
    default:
      return onAnyTime(m, told, now);
  }
}

/** @param {Machine} m @param {Told} told @param {number} now */
function onAttached(m, told, now) {
  const untold = m.delivery.untold(told.type === 'gap' ? told.gap : null);
  if (untold) onGap(m, untold, now);
  switch (told.type) {
    case 'event':
      return onEvent(m, told, now);
    case 'gap':
      return onGap(m, told.gap, now);
    case 'replay_complete':
      return onReplayComplete(m);
    case 'state_exported':
      return onState(m, told);
    case 'heartbeat':
      return onHeartbeat(m, told.head, told.token);
    case 'accepted':
      return onAccepted(m, told.message_id, told.in_seq);
    case 'refused':
      return onRefused(m, told, now);
    default:
      return onAnyTime(m, told, now);
  }
}

/** What means the same whether attached or not. @param {Machine} m @param {Told} told @param {number} now */
function onAnyTime(m, told, now) {
  switch (told.type) {
    case 'connected':
      m.backoff.configure(told.backoff, told.maxAttempts);
      m.heartbeatInterval = told.heartbeatInterval;
      return;
    case 'superseded':
      return onSuperseded(m, now);
    case 'session_ended':
      return stop(m, 'ended');
    case 'draining':
      return m.put({ type: 'draining' });
    default: // an answer to nothing that was asked, or an event before the answer
  }
}

/** @param {Machine} m @param {Extract<Told, { type: 'event' }>} told @param {number} now */
function onEvent(m, { seq, frame }, now) {
  const verdict = m.delivery.event(seq, now);
  if (verdict === TELL) m.put({ type: 'event', frame });
  else if (verdict === NEW_HOLE) acknowledge(m, true);
}

/** @param {Machine} m @param {Gap} gap @param {number} now */
function onGap(m, gap, now) {
  const verdict = m.delivery.gap(gap, now);
  if (verdict === NEW_HOLE) return acknowledge(m, true);
  if (verdict === KNOWN || verdict === OLD_HOLE) return;
  m.put({ type: 'gap', gap: verdict });
  m.save();
}

/** Told once an attachment: what is sent again because of a hole also ends with this. @param {Machine} m */
function onReplayComplete(m) {
  if (m.catchingUp) m.put({ type: 'caught_up' });
  m.catchingUp = false;
}

/** @param {Machine} m @param {Extract<Told, { type: 'state_exported' }>} told */
function onState(m, { signed_state, seq, frame }) {
  m.wantsState = false;
  m.snapshot = { signed_state, seq };
  m.put({ type: 'state', frame, fills_gap: m.delivery.stateFillsGap() });
  m.save();
}

/** @param {Machine} m @param {number} head @param {string|null} token */
function onHeartbeat(m, head, token) {
  if (token !== null) {
    m.token = token;
    m.save();
  }
  sendAck(m, m.delivery.heartbeat(head));
}

/** @param {Machine} m @param {string} message_id @param {number} in_seq */
function onAccepted(m, message_id, in_seq) {
  if (m.outbox.accepted(message_id)) m.put({ type: 'accepted', message_id, in_seq });
}

/** @param {Machine} m @param {Refusal} refusal @param {number} now */
function onRefused(m, refusal, now) {
  const { code, retryAfter, message } = refusal;
  const advice = recovery(code);
  if (advice === 'create_new_session' && !isAboutState(code)) {
    m.outbox.disconnected();
    return lost(m, 'reconnect', code, now);
  }
  // Attached as we believe, not as the server does: come back and see.
  if (code === 'SESSION_NOT_OWNED') return abandon(m, retryAfter, false);
  const message_id = refusal.message_id ?? messageMeantBy(m, code);
  if (message_id === null) {
    m.wantsState = false;
    return m.put({ type: 'refused', code, message });
  }
  if (advice !== 'retry_later') return giveUp(m, message_id, 'refused', code);
  const until = now + (retryAfter ?? m.backoff.step(m.outbox.holds));
  m.outbox.hold(message_id, until, mayHaveEntered(code));
}

/**
 * The message that a refusal is about which names none. The server answers in order; of what else is
 * sent while attached, nothing can have the wrong shape or size, and what is merely sent again does no
 * harm.
 * @param {Machine} m @param {string} code
 */
function messageMeantBy(m, code) {
  const shape = ['INVALID_MESSAGE', 'MESSAGE_TOO_LARGE', 'ID_INVALID'].includes(code);
  return shape || recovery(code) === 'retry_later' ? m.outbox.oldestOnItsWay() : null;
}

/** Acks what was delivered. @param {Machine} m @param {boolean} gapDetected */
export function acknowledge(m, gapDetected) {
  sendAck(m, m.delivery.ack(gapDetected));
}

/** It is saved first: what is acked may be gone when we come back.
 *  @param {Machine} m @param {import('./delivery.js').Ack} ack */
function sendAck(m, ack) {
  m.save();
  const session_id = m.attachedTo();
  if (session_id !== null) m.send({ event: 'user.ack', session_id, metadata: ack });
}
