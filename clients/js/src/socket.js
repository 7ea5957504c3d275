// One WebSocket: opened within a bound, authenticated by frame where that is wanted, and let go at once.

import { read, retryAfterIn } from './frames.js';
import { FAREWELL } from './limits.js';

/** @typedef {{ code: number|null, retryAfter: number|null }} Ending */
/**
 * @typedef {object} SocketOptions
 * @property {string} url
 * @property {typeof WebSocket} WebSocket
 * @property {() => Promise<string|null>} token for `user.authenticate`
 * @property {number} timeout
 */
/**
 * What is told of it: perhaps `opened`, then frames, and at last one `closed`.
 * @typedef {object} SocketCallbacks
 * @property {() => void} opened
 * @property {(frame: unknown) => void} frame null, if it was no JSON
 * @property {(ending: Ending) => void} closed
 */

/** @type {Ending} */
const NO_WORD = { code: null, retryAfter: null };

export class Socket {
  #socket;
  #callbacks;
  #timer;
  #open = false;
  /** Frames that came while the answer to `user.authenticate` is awaited. @type {unknown[]} */
  #ahead = [];

  /** @param {SocketOptions} options @param {SocketCallbacks} callbacks */
  constructor(options, callbacks) {
    this.#callbacks = callbacks;
    this.#socket = new options.WebSocket(options.url);
    this.#timer = setTimeout(() => this.#end(NO_WORD), options.timeout);
    this.#socket.onopen = () => this.#authenticate(options.token);
    this.#socket.onmessage = ({ data }) => this.#receive(parse(data));
    this.#socket.onclose = ({ code, reason }) => this.#end({ code, retryAfter: retryAfterIn(reason) });
    this.#socket.onerror = () => {}; // the close that follows says all there is to say
  }

  /** Writes a frame. What can't be written is sent again on the next socket, as far as it must be. @param {unknown} frame */
  send(frame) {
    if (this.#socket.readyState === 1) this.#socket.send(JSON.stringify(frame));
  }

  /** Lets it go without waiting for the server, which is told if it still listens. */
  drop() {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    // The package `ws` waits half a minute for an answer, and keeps the program alive meanwhile.
    const farewell = setTimeout(() => /** @type {any} */ (socket).terminate?.(), FAREWELL);
    /** @type {any} */ (farewell).unref?.();
  }

  /** @param {() => Promise<string|null>} getToken */
  async #authenticate(getToken) {
    try {
      const token = await getToken();
      if (token === null) this.#opened();
      else this.send({ event: 'user.authenticate', content: { token } });
    } catch {
      this.#end(NO_WORD); // the application has no token to give now; it is asked again
    }
  }

  /** @param {unknown} frame */
  #receive(frame) {
    if (this.#open) return this.#callbacks.frame(frame);
    this.#ahead.push(frame);
    if (read(frame)[0]?.type === 'authenticated') this.#opened();
  }

  #opened() {
    if (this.#open || this.#socket.readyState !== 1) return;
    this.#open = true;
    clearTimeout(this.#timer);
    this.#callbacks.opened();
    for (const frame of this.#ahead.splice(0)) this.#callbacks.frame(frame);
  }

  /** @param {Ending} ending */
  #end(ending) {
    this.drop();
    this.#callbacks.closed(ending);
  }
}

/** @param {unknown} data */
function parse(data) {
  try {
    return typeof data === 'string' ? JSON.parse(data) : null;
  } catch {
    return null;
  }
}
