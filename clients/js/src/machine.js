// The client's brain: what to send, what to ignore and when to wait, without any IO.
//
// A `Machine` is told what happened and says what to do. Whoever drives it owns the socket, the clock,
// the randomness and the storage, and repeats: carry out every output of `takeOutputs()` in its order;
// wait for the first of the socket, the application and `nextDeadline()`; `handle` what happened.
//
// There is one socket at a time. Each `connect` is answered by one `opened` or `connect_failed`; each
// socket that was opened ends with one `closed`, also when `close` asked for it. `stopped` is the last
// status. What it decides is the same as in `rejoin-core`: both pass the cases in `conformance/`.
//
// | file | what it decides |
// |---|---|
// | `connection` | the life of a socket: opened, silent, closed, waited for; the end |
// | `recover` | what to ask for on a new socket, and what to fall back to when it is refused |
// | `attached` | what to do with what comes in |
// | `wishes` | what to do for the application: messages, the state, the end |
// | `delivery` | the position: duplicates, holes, gaps, acks |
// | `outbox` | messages that the server has not answered for |
// | `backoff` | how long to wait |

import { onFrame, acknowledge } from './attached.js';
import { Backoff } from './backoff.js';
import * as connection from './connection.js';
import { Delivery } from './delivery.js';
import { HEARTBEAT_INTERVAL, MAX_UNACCEPTED, MAX_UNACCEPTED_BYTES } from './limits.js';
import { Outbox } from './outbox.js';
import { end, post, requestState, sendLetters } from './wishes.js';

/** @typedef {import('./frames.js').Frame} Frame */
/** @typedef {import('./delivery.js').Gap} Gap */
/** @typedef {import('./delivery.js').Position} Position */
/**
 * What is kept between runs: enough to come back after a reload or a restart.
 * @typedef {{ session_id: string|null, position: Position|null, token: string|null,
 *   snapshot: { signed_state: string, seq: number }|null }} Saved
 */
/**
 * Something happened. What does not fit the moment is ignored. `random` is 32 fresh random bits.
 * @typedef {{ type: 'opened'|'heard'|'tick'|'wake'|'request_state'|'end' }
 *   | { type: 'connect_failed', random: number }
 *   | { type: 'closed', code: number|null, retry_after_ms?: number|null, random: number }
 *   | { type: 'frame', frame: unknown }
 *   | { type: 'send', message_id: string, content: unknown }
 *   | { type: 'cancel', message_id: string }} Input
 */
/**
 * How things stand.
 * @typedef {{ state: 'connecting' }
 *   | { state: 'connected', session_id: string, how: 'created'|'resumed'|'restored' }
 *   | { state: 'connection_lost' }
 *   | { state: 'reconnecting', attempt: number, delay_ms: number }
 *   | { state: 'restoring' }
 *   | { state: 'expired', code: string }
 *   | { state: 'stopped', reason: StopReason, code?: string|number }} Status
 */
/** @typedef {'ended'|'superseded'|'closed'|'refused'|'lost'} StopReason */
/** @typedef {'refused'|'not_sent'|'outcome_unknown'|'outbox_full'} GivenUp */
/**
 * Something to do. Outputs are carried out in the order they come.
 * @typedef {{ type: 'connect'|'close'|'caught_up'|'draining' }
 *   | { type: 'send', frame: Frame }
 *   | { type: 'event', frame: Frame }
 *   | { type: 'gap', gap: Gap }
 *   | { type: 'state', frame: Frame, fills_gap: boolean }
 *   | { type: 'accepted', message_id: string, in_seq: number }
 *   | { type: 'given_up', message_id: string, reason: GivenUp, code?: string }
 *   | { type: 'refused', code: string, message: string }
 *   | { type: 'status', status: Status }
 *   | { type: 'save', saved: Saved }} Output
 */
/** What the server is asked for on a new socket. @typedef {'reconnect'|'restore'|'create'} Request */
/**
 * How far the client is from being attached.
 * @typedef {{ name: 'waiting', until: number, notBefore: number }
 *   | { name: 'asking', request: Request, withToken: boolean }
 *   | { name: 'closing', retryAfter: number|null, atOnce: boolean }
 *   | { name: 'connecting'|'attached'|'stopped' }} Phase
 */
/**
 * What people can set.
 * @typedef {object} MachineOptions
 * @property {boolean} [createWhenLost] whether a new session is created when the old one is gone and can't be
 *   restored (true)
 * @property {number} [messagesInFlight] messages that may be on their way at the same time (1: they reach the
 *   agent in order whatever happens)
 * @property {number} [maxUnaccepted] messages kept for sending; beyond that they are given up at once (1,000)
 * @property {number} [maxUnacceptedBytes] bytes of messages kept for sending; a larger one is kept alone (4 MiB)
 * @property {Record<string, unknown>} [about] `content` of `user.create_session`: client_id, app_version, …
 */

/** @type {Saved} */
export const NOTHING_SAVED = { session_id: null, position: null, token: null, snapshot: null };

const DEFAULTS = {
  createWhenLost: true,
  messagesInFlight: 1,
  maxUnaccepted: MAX_UNACCEPTED,
  maxUnacceptedBytes: MAX_UNACCEPTED_BYTES,
  about: /** @type {Record<string, unknown>} */ ({}),
};

/** The client's side of one session, and of those that follow it if it is lost. */
export class Machine {
  /** @type {Phase} */
  phase = { name: 'connecting' };
  /** When the token was first shown to a server, which has not answered since. @type {number|null} */
  tokenShownAt = null;
  /** Until when a socket that was given up may still bring an earlier ask to the server, which then
   *  takes it for another client. @type {number|null} */
  lateAskUntil = null;
  backoff = new Backoff();
  heartbeatInterval = HEARTBEAT_INTERVAL;
  /** When the server was last heard of on this socket. */
  heardAt = 0;
  /** The application wants the state and does not have it yet. */
  wantsState = false;
  /** The application wants the session ended and it is not yet. */
  wantsEnd = false;
  /** The end of a replay is still to be told. */
  catchingUp = false;
  /** @type {Output[]} */
  outputs = [];

  /**
   * A client that goes on from what was saved, or begins. It wants a socket at once.
   * @param {MachineOptions} [options] @param {Partial<Saved>|null} [saved]
   */
  constructor(options, saved) {
    this.options = { ...DEFAULTS, ...options };
    /** What was last given out to be saved. @type {Saved} */
    this.saved = { ...NOTHING_SAVED, ...saved };
    /** The session to come back to; none before the first, and after one was lost. */
    this.sessionId = this.saved.session_id;
    this.token = this.saved.token;
    this.snapshot = this.saved.snapshot;
    /** Whether the server was asked on a socket and has not answered: perhaps, by the run before. */
    this.asked = this.sessionId !== null;
    this.delivery = new Delivery(this.saved.position);
    this.outbox = new Outbox(this.options);
    connection.connect(this);
  }

  /** Something happened. Whatever is due by `now` is done as well. @param {Input} input @param {number} now */
  handle(input, now) {
    switch (input.type) {
      case 'opened':
        connection.onOpened(this, now);
        break;
      case 'connect_failed':
        connection.onConnectFailed(this, input.random, now);
        break;
      case 'closed':
        connection.onClosed(this, input.code, input.retry_after_ms ?? null, input.random, now);
        break;
      case 'frame':
        connection.onHeard(this, now);
        onFrame(this, input.frame, now, () => this.#doWhatIsDue(now));
        break;
      case 'heard':
        connection.onHeard(this, now);
        break;
      case 'wake':
        connection.onWake(this, now);
        break;
      case 'send':
        post(this, input.message_id, input.content);
        break;
      case 'cancel':
        post(this, input.message_id);
        break;
      case 'request_state':
        requestState(this);
        break;
      case 'end':
        end(this);
        break;
      case 'tick':
        break;
    }
    this.#doWhatIsDue(now);
  }

  /** Everything there is to do since this was last asked. */
  takeOutputs() {
    return this.outputs.splice(0);
  }

  /**
   * When `tick` is due if nothing else happens before: the next attempt, an ack, a message that was held
   * back, or the end of patience with a silent server.
   * @returns {number|null}
   */
  nextDeadline() {
    switch (this.phase.name) {
      case 'waiting':
        return this.phase.until;
      case 'asking':
        return connection.silenceEnds(this);
      case 'attached':
        return earliest(connection.silenceEnds(this), this.delivery.ackDue(), this.outbox.due());
      default:
        return null;
    }
  }

  /** What became of the events so far. */
  counts() {
    return { ...this.delivery.counts };
  }

  /** The session this is attached to. @returns {string|null} */
  attachedTo() {
    return this.phase.name === 'attached' ? this.sessionId : null;
  }

  /** @param {Output} output */
  put(output) {
    this.outputs.push(output);
  }

  /** @param {Status} status */
  status(status) {
    this.put({ type: 'status', status });
  }

  /** @param {Frame} frame */
  send(frame) {
    this.put({ type: 'send', frame });
  }

  /** Gives out what is worth keeping, if it has changed. */
  save() {
    /** @type {Saved} */
    const saved = {
      session_id: this.sessionId,
      position: this.delivery.position(),
      token: this.token,
      snapshot: this.snapshot,
    };
    if (JSON.stringify(saved) === JSON.stringify(this.saved)) return;
    this.saved = saved;
    this.put({ type: 'save', saved });
  }

  /** @param {number} now */
  #doWhatIsDue(now) {
    const { phase } = this;
    if (phase.name === 'waiting') {
      if (phase.until <= now) connection.connect(this);
    } else if (phase.name === 'asking' || phase.name === 'attached') {
      if (connection.isSilent(this, now)) connection.abandon(this, null, false);
      else if (phase.name === 'attached') {
        if (this.delivery.isAckDue(now)) acknowledge(this, false);
        sendLetters(this, now);
      }
    }
  }
}

/** @param {(number|null)[]} times @returns {number|null} */
function earliest(...times) {
  const known = times.filter((time) => time !== null);
  return known.length > 0 ? Math.min(...known) : null;
}
