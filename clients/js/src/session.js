// A session that outlives its connections, as applications see it: what they can ask for, and what they
// are told. What is done about it is decided by `machine.js` and carried out by `driver.js`.

import { Driver } from './driver.js';
import { watch } from './environment.js';
import { SessionError } from './errors.js';
import { attempt, Handover, upTo } from './handover.js';
import { asInput, deferred, Letters, newMessageId, refused } from './letters.js';
import { CONNECT_TIMEOUT, WINDOW_ITEMS } from './limits.js';
import { Machine } from './machine.js';
import { Keeper, MemoryStorage } from './storage.js';
import { queue } from './tabs.js';

/** @typedef {import('./frames.js').Frame} Frame */
/** @typedef {import('./machine.js').Saved} Saved */
/**
 * How things stand. `stopped` is the end, with one exception: with reason `other_tab` another tab has the
 * session, and this one goes on when that is closed, or at once after `takeOver()`.
 * @typedef {{ state: 'connecting' }
 *   | { state: 'connected', session_id: string, how: 'created'|'resumed'|'restored',
 *       caught_up: boolean, draining: boolean }
 *   | { state: 'connection_lost' }
 *   | { state: 'reconnecting', attempt: number, delay_ms: number }
 *   | { state: 'restoring' }
 *   | { state: 'expired', code: string }
 *   | { state: 'stopped', reason: import('./machine.js').StopReason|'other_tab'|'left'|'storage',
 *       code?: string|number }} Status
 */
/** @typedef {import('./letters.js').Accepted} Accepted */
/**
 * The agent's state as of event `seq`.
 * @typedef {{ seq: number, state: any, signed_state: string, fills_gap: boolean }} State
 */
/**
 * What can be listened to. An `event` listener that returns a promise is waited for before the next event.
 * @typedef {{ event: Frame, gap: import('./delivery.js').Gap, state: State, status: Status,
 *   given_up: { message_id: string, reason: string, code?: string }, refused: { code: string, message: string },
 *   error: Error }} SessionEvents
 */
/**
 * @typedef {object} SessionSettings
 * @property {import('./storage.js').Storage} [storage] where to keep what is needed to come back (in memory)
 * @property {string|(() => string|null|Promise<string|null>)} [token] an API key or JSON web token, or how to get one
 * @property {boolean} [fromBeginning] deliver everything the server still holds, as a page wants it that was
 *   reloaded (false: only what was not handled yet)
 * @property {typeof WebSocket} [WebSocket] for Node before 22, which has none: that of the package `ws`
 * @property {number} [connectTimeout] milliseconds that opening a connection may take (10,000)
 * @property {number} [window] items that may wait for a slow application (10,000)
 * @property {boolean} [tabs] whether tabs with the same storage take turns (true)
 */
/** @typedef {import('./machine.js').MachineOptions & SessionSettings} SessionOptions */
/** @template T @typedef {import('./letters.js').Waiter<T>} Waiter */

export class Session {
  /** @type {Status} */
  #status = { state: 'connecting' };
  /** While this tab has the session. @type {Driver|null} */
  #driver = null;
  #handover = new Handover();
  /** @type {Map<string, Set<(value: any) => unknown>>} */
  #listeners = new Map();
  #letters;
  /** Who waits for the state. @type {Waiter<State>[]} */
  #stateWanted = [];
  #wantsEnd = false;
  /** How far this tab was when it last had the session. @type {import('./delivery.js').Position|null} */
  #shown = null;
  /** @type {({ promise: Promise<Session> } & Waiter<Session>)|null} */
  #connected = null;
  /** @type {import('./tabs.js').Turn|null} */
  #turn = null;
  /** Goes up whenever this tab gets or loses the session. */
  #tenure = 0;
  #unwatch = () => {};
  #over = false;
  #options;
  /** @type {import('./storage.js').Storage} */
  #storage;
  #equipment;

  /**
   * @param {string|URL} url such as `wss://rejoin.example/ws`, or `/ws` of the page's own origin
   * @param {SessionOptions} [options]
   */
  constructor(url, options = {}) {
    this.#options = options;
    this.#letters = new Letters(options.maxUnaccepted);
    this.#storage = options.storage ?? new MemoryStorage();
    this.#equipment = {
      dial: dial(url, options),
      handover: this.#handover,
      keeper: new Keeper(this.#storage, (error) => this.#emit('error', error)),
      window: options.window ?? WINDOW_ITEMS,
      told: (/** @type {import('./driver.js').News} */ news) => this.#onNews(news),
    };
  }

  /** How things stand now. */
  get status() {
    return this.#status;
  }

  /** The session's id, once there is one. @returns {string|null} */
  get sessionId() {
    return this.#driver?.machine.sessionId ?? null;
  }

  /** What became of the events since this tab has the session. */
  get counts() {
    return this.#driver?.machine.counts() ?? { delivered: 0, duplicates: 0, out_of_order: 0, gaps: 0 };
  }

  /**
   * Begins. It keeps trying for as long as it makes sense; the promise is kept when it is connected for the
   * first time, and broken if that can't be. Called again it gives the same promise.
   * @returns {Promise<Session>}
   */
  connect() {
    if (this.#connected) return this.#connected.promise;
    this.#connected = deferred();
    const cut = () => this.cut();
    // A page that goes away is cut, too: that saves where it is.
    this.#unwatch = watch({ wake: () => this.wake(), offline: cut, hidden: cut });
    const key = this.#options.tabs === false ? undefined : this.#storage.key;
    const owned = () => void this.#begin((this.#tenure += 1));
    this.#turn = queue(key, { owned, waiting: () => this.#yield() });
    return this.#connected.promise;
  }

  /**
   * Tells the agent something. The promise is kept when the server has stored it, and broken if it will not
   * or may not have. Connections that break in between do no harm: it is sent until it is answered.
   * @param {unknown} content any JSON but null
   * @param {{ messageId?: string }} [options] an id that makes sending it again, also after a restart, harmless
   * @returns {Promise<Accepted>}
   */
  send(content, { messageId = newMessageId() } = {}) {
    const json = JSON.stringify(content) ?? 'null';
    if (json === 'null') throw new TypeError('a message is any JSON but null');
    return this.#post(messageId, JSON.parse(json)); // a copy: the caller may go on changing its own
  }

  /** Wants the agent to stop what it is doing: messages sent before this, not those sent after. */
  cancel({ messageId = newMessageId() } = {}) {
    return this.#post(messageId);
  }

  /** Asks for the agent's state. It is also kept, to restore the session from. @returns {Promise<State>} */
  requestState() {
    if (this.#over) return refused('stopped');
    const { promise, ...waiter } = deferred();
    this.#stateWanted.push(waiter);
    this.#driver?.tell({ type: 'request_state' });
    return promise;
  }

  /** Ends the session on the server, with its logs and its state. Done when that is known to have happened. */
  async end() {
    if (this.#over) return;
    if (this.#status.state === 'stopped') throw new SessionError('other_tab');
    this.#wantsEnd = true;
    const stopped = deferred();
    const forget = this.on('status', () => this.#over && stopped.resolve(null));
    void this.connect();
    this.#driver?.tell({ type: 'end' });
    await stopped.promise;
    forget();
  }

  /**
   * Goes away. The session stays on the server, and what was kept stays kept; what the application has under
   * way counts as handled. Done when everything is saved.
   * @returns {Promise<void>}
   */
  close() {
    this.#suspend();
    if (!this.#over) this.#finish({ state: 'stopped', reason: 'left' });
    // Not before: a session that was superseded or ended is not for the next tab to begin again.
    this.#handover.afterwards(() => this.#turn?.leave());
    return new Promise((resolve) => this.#handover.afterwards(resolve));
  }

  /** The machine woke up or is online again: a wait is cut short, a silent connection not trusted. */
  wake() {
    this.#driver?.tell({ type: 'wake' });
  }

  /** Drops the connection as a broken network would; the session comes back by itself. */
  cut() {
    this.#driver?.cut();
  }

  /** Another tab has the session: have it here instead. */
  takeOver() {
    this.#turn?.takeOver();
  }

  /**
   * Listens. The function it returns ends that.
   * @template {keyof SessionEvents} T
   * @param {T} type @param {(value: SessionEvents[T]) => unknown} listener @returns {() => void}
   */
  on(type, listener) {
    if (type === 'event') {
      const take = /** @type {(frame: Frame) => unknown} */ (listener);
      return this.#handover.addTaker((frame) => (frame.seq === undefined ? undefined : take(frame)));
    }
    const listeners = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, listeners.add(listener));
    return () => void listeners.delete(listener);
  }

  /**
   * The events, in order and each once; where some are gone, the notice `gap` and, if there is one, the
   * state that stands in for them. An event counts as handled when the loop asks for the next one.
   * @returns {AsyncIterableIterator<Frame>}
   */
  [Symbol.asyncIterator]() {
    return this.#handover.iterate();
  }

  /** This tab has the session: go on from what was kept, with what is still to be said. @param {number} tenure */
  async #begin(tenure) {
    /** @type {Saved|null} */
    let saved;
    try {
      saved = await this.#storage.load();
    } catch (error) {
      // To begin anew because a disk did not answer would abandon a session that lives.
      this.#emit('error', /** @type {Error} */ (error));
      return this.#finish({ state: 'stopped', reason: 'storage' });
    }
    if (this.#over || tenure !== this.#tenure) return; // another tab was quicker than the storage
    if (saved?.position && this.#options.fromBeginning) {
      // What another tab has shown meanwhile, this one has not.
      saved = { ...saved, position: this.#shown ?? { ...saved.position, seq: 0 } };
    }
    this.#driver = new Driver(new Machine(this.#options, saved), this.#equipment);
    for (const input of this.#letters.inputs()) this.#driver.tell(input);
    if (this.#stateWanted.length > 0) this.#driver.tell({ type: 'request_state' });
    this.#driver.tell({ type: this.#wantsEnd ? 'end' : 'tick' });
  }

  /** Another tab has the session. What was not answered is sent when this one has it again. */
  #yield() {
    this.#tenure += 1;
    this.#suspend();
    this.#setStatus({ state: 'stopped', reason: 'other_tab' });
    return new Promise((/** @type {(value: void) => void} */ resolve) => this.#handover.afterwards(resolve));
  }

  /** Lets the connection go and saves how far the application is. */
  #suspend() {
    if (!this.#driver) return;
    this.#driver.stop();
    const saved = upTo(this.#driver.machine.saved, this.#handover.clear(), this.#handover.handledSeq);
    this.#driver = null;
    this.#shown = saved?.position ?? null;
    if (saved) this.#handover.afterwards(() => this.#equipment.keeper.save(saved));
  }

  /** @param {string} messageId @param {unknown} [content] @returns {Promise<Accepted>} */
  #post(messageId, content) {
    if (this.#over) return refused('not_sent');
    const { promise, isNew } = this.#letters.add(messageId, content);
    if (isNew) this.#driver?.tell(asInput(messageId, content));
    return promise;
  }

  /** @param {import('./driver.js').News} news */
  #onNews(news) {
    switch (news.type) {
      case 'gap':
        this.#emit('gap', news.gap);
        return this.#driver?.give(gapNotice(news.gap));
      case 'state':
        return this.#onState(news.frame, news.fills_gap);
      case 'accepted':
        this.#letters.take(news.message_id)?.resolve({ message_id: news.message_id, in_seq: news.in_seq });
        return;
      case 'given_up': {
        const { type: _, ...given_up } = news;
        this.#letters.take(news.message_id)?.reject(new SessionError(news.reason, news.code));
        return this.#emit('given_up', given_up);
      }
      case 'refused':
        for (const { reject } of this.#stateWanted.splice(0)) reject(new SessionError('refused', news.code));
        return this.#emit('refused', { code: news.code, message: news.message });
      case 'caught_up':
      case 'draining':
        return this.#status.state === 'connected'
          ? this.#setStatus({ ...this.#status, [news.type]: true })
          : undefined;
      case 'status':
        return this.#onStatus(news.status);
    }
  }

  /** @param {import('./machine.js').Status} status */
  #onStatus(status) {
    if (status.state === 'stopped') return this.#finish(status);
    if (status.state !== 'connected') return this.#setStatus(status);
    this.#setStatus({ ...status, caught_up: status.how === 'created', draining: false });
    this.#connected?.resolve(this);
  }

  /** @param {Frame} frame @param {boolean} fills_gap */
  #onState(frame, fills_gap) {
    const { seq, session_state, signed_state } = frame.metadata;
    const state = { seq, state: session_state ?? null, signed_state, fills_gap };
    for (const { resolve } of this.#stateWanted.splice(0)) resolve(state);
    this.#emit('state', state);
    if (fills_gap) this.#driver?.give(frame);
  }

  /** The end. What came before it is still handed over. @param {Extract<Status, { state: 'stopped' }>} status */
  #finish(status) {
    this.#over = true;
    this.#unwatch();
    this.#handover.end();
    this.#setStatus(status);
    const error = new SessionError('stopped', status.code ?? status.reason);
    this.#connected?.reject(error);
    this.#letters.rejectAll(error);
    for (const { reject } of this.#stateWanted.splice(0)) reject(error);
  }

  /** @param {Status} status */
  #setStatus(status) {
    this.#status = status;
    this.#emit('status', status);
  }

  /** @template {keyof SessionEvents} T @param {T} type @param {SessionEvents[T]} value */
  #emit(type, value) {
    for (const listener of this.#listeners.get(type) ?? []) void attempt(() => listener(value));
  }
}

/** @param {string|URL} url @param {SessionOptions} options @returns {import('./socket.js').SocketOptions} */
function dial(url, { token, WebSocket = globalThis.WebSocket, connectTimeout = CONNECT_TIMEOUT }) {
  if (!WebSocket)
    throw new TypeError(
      'there is no WebSocket here: pass one, such as that of the package "ws", in options.WebSocket',
    );
  const address = new URL(url, globalThis.location?.href);
  address.protocol = address.protocol.replace(/^http/, 'ws');
  const getToken = async () => (typeof token === 'function' ? token() : (token ?? null));
  return { url: address.href, WebSocket, token: getToken, timeout: connectTimeout };
}

/** What stands for a gap in an iteration. @param {import('./delivery.js').Gap} gap @returns {Frame} */
const gapNotice = (gap) => ({
  event: 'system.notice',
  content: gap.from === null ? 'Events are gone' : `Events ${gap.from} to ${gap.to} are gone`,
  metadata: { code: 'gap', ...gap },
});
