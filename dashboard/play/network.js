// A network that a page can break: sockets for `Session` that are real while it works, fail while it is cut,
// and fall silent while the machine "sleeps". It also sees every frame that arrives, before the client has
// decided what to do with it.

import { read } from '/assets/client/frames.js';

/** @typedef {import('/assets/client/frames.js').Frame} Frame */

/** As long as it takes to learn that there is no network. */
const FAILS_AFTER = 40;

/** What a browser says of a connection that broke. */
const BROKEN = { code: 1006, reason: '' };

export class Network {
  isCut = false;
  isAsleep = false;
  /** Told of every event that arrives, also of those that the client will drop. @type {(event: Frame) => void} */
  onarrival = () => {};
  /** @type {Set<Line>} */
  lines = new Set();

  /** The class for `new Session(url, { WebSocket })`. */
  get WebSocket() {
    const network = this;
    const Socket = class {
      /** @param {string} url */
      constructor(url) {
        return new Line(network, url);
      }
    };
    return /** @type {typeof WebSocket} */ (/** @type {unknown} */ (Socket));
  }

  /** Everything breaks, and stays broken. */
  cut() {
    this.isCut = true;
    if (!this.isAsleep) this.#breakAll();
  }

  /** It works again. */
  mend() {
    this.isCut = false;
  }

  /** Nothing arrives any more, and nobody is told. */
  sleep() {
    this.isAsleep = true;
    for (const line of this.lines) line.fallSilent();
  }

  /** What was silent turns out to be broken. */
  wake() {
    this.isAsleep = false;
    this.#breakAll();
  }

  #breakAll() {
    for (const line of [...this.lines]) line.break();
  }

  /** Writes a frame of the page's own, if there is an open connection. @param {Frame} frame */
  send(frame) {
    for (const line of this.lines) if (line.readyState === 1) line.send(JSON.stringify(frame));
  }
}

/** One connection; the part of `WebSocket` that the client uses. */
class Line {
  /** @type {(() => void)|null} */
  onopen = null;
  /** @type {((message: { data: unknown }) => void)|null} */
  onmessage = null;
  /** @type {((end: { code: number, reason: string }) => void)|null} */
  onclose = null;
  readyState = 0;
  /** @type {WebSocket|null} */
  #socket = null;
  #network;

  /** @param {Network} network @param {string} url */
  constructor(network, url) {
    this.#network = network;
    network.lines.add(this);
    if (network.isAsleep) return; // it waits for an answer
    if (network.isCut) setTimeout(() => this.break(), FAILS_AFTER);
    else this.#open(new WebSocket(url));
  }

  /** @param {string} data */
  send(data) {
    this.#socket?.send(data);
  }

  close() {
    this.fallSilent();
    this.readyState = 3;
    this.#network.lines.delete(this);
  }

  /** The connection is gone, and this end does not know. */
  fallSilent() {
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  /** The connection is gone, and this end is told. */
  break() {
    this.close();
    this.onclose?.(BROKEN);
  }

  /** @param {WebSocket} socket */
  #open(socket) {
    this.#socket = socket;
    socket.onopen = () => {
      this.readyState = 1;
      this.onopen?.();
    };
    socket.onmessage = ({ data }) => {
      this.#look(data);
      this.onmessage?.({ data });
    };
    socket.onclose = (end) => {
      this.close();
      this.onclose?.(end);
    };
  }

  /** @param {string} data */
  #look(data) {
    for (const told of read(JSON.parse(data))) {
      if (told.type === 'event') this.#network.onarrival(told.frame);
    }
  }
}
