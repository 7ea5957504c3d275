// What the application wants: to tell the agent something, to have its state, to end the session.

import { stop } from './connection.js';

/** @typedef {import('./machine.js').Machine} Machine */
/** @typedef {import('./machine.js').GivenUp} GivenUp */

/** It wants to tell the agent something; without content, to stop.
 *  @param {Machine} m @param {string} message_id @param {unknown} [content] */
export function post(m, message_id, content) {
  if (m.phase.name === 'stopped' || m.wantsEnd) tellGivenUp(m, message_id, 'not_sent');
  else if (!m.outbox.push(message_id, content)) tellGivenUp(m, message_id, 'outbox_full');
}

/** Writes what may be written now. @param {Machine} m @param {number} now */
export function sendLetters(m, now) {
  const session_id = m.attachedTo();
  if (session_id === null) return;
  for (let letter = m.outbox.next(now); letter !== null; letter = m.outbox.next(now)) {
    const { message_id, content } = letter;
    if (content === undefined) m.send({ event: 'user.cancel', session_id, message_id });
    else m.send({ event: 'user.message', session_id, message_id, content });
  }
}

/** It wants the state: asked for now, or as soon as it can be; and again after a connection that broke
 *  before the answer. @param {Machine} m */
export function requestState(m) {
  if (m.phase.name === 'stopped' || m.wantsEnd) return;
  m.wantsState = true;
  const session_id = m.attachedTo();
  if (session_id !== null) m.send({ event: 'user.request_state', session_id });
}

/** It wants the end: now, or as soon as it can be. Where there is no session and none was asked for,
 *  there is nothing to end. @param {Machine} m */
export function end(m) {
  if (m.phase.name === 'stopped' || m.wantsEnd) return;
  m.wantsEnd = true;
  giveUpAll(m);
  const session_id = m.attachedTo();
  if (session_id !== null) m.send({ event: 'user.end_session', session_id });
  else if (m.sessionId === null && m.phase.name !== 'asking') stop(m, 'ended');
}

/** Gives up what may have reached a session that is gone. It is not sent to another session unasked, for
 *  then the agent might act on it twice. @param {Machine} m */
export function giveUpUnanswered(m) {
  for (const message_id of m.outbox.takeUnanswered()) tellGivenUp(m, message_id, 'outcome_unknown');
}

/** Gives up everything: nothing is sent any more. @param {Machine} m */
export function giveUpAll(m) {
  giveUpUnanswered(m);
  for (const message_id of m.outbox.takeAll()) tellGivenUp(m, message_id, 'not_sent');
}

/** @param {Machine} m @param {string} message_id @param {GivenUp} reason @param {string} [code] */
export function giveUp(m, message_id, reason, code) {
  if (m.outbox.remove(message_id)) tellGivenUp(m, message_id, reason, code);
}

/** @param {Machine} m @param {string} message_id @param {GivenUp} reason @param {string} [code] */
function tellGivenUp(m, message_id, reason, code) {
  const output = { type: /** @type {const} */ ('given_up'), message_id, reason };
  m.put(code === undefined ? output : { ...output, code });
}
