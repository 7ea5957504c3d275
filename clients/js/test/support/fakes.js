// Parts of a browser, made by hand, that a test can steer.

/** A WebSocket whose other end is the test. */
export class FakeWebSocket {
  static all = [];
  static last = () => FakeWebSocket.all.at(-1);
  static reset = () => (FakeWebSocket.all = []);
  readyState = 0;
  sent = [];
  closedByClient = false;

  constructor(url) {
    this.url = url;
    FakeWebSocket.all.push(this);
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.closedByClient = true;
    this.readyState = 3;
  }

  /** The server takes the connection. */
  open() {
    this.readyState = 1;
    this.onopen?.();
    return new Promise((resolve) => setImmediate(resolve));
  }

  /** The server says something. */
  say(frame) {
    this.onmessage?.({ data: typeof frame === 'string' ? frame : JSON.stringify(frame) });
  }

  /** The server or the network ends it. */
  end(code = 1006, reason = '') {
    this.readyState = 3;
    this.onclose?.({ code, reason });
  }
}

export const created = (session_id = 'sess_one') => ({
  event: 'agent.session_created',
  session_id,
  metadata: { resumed: false, epoch: 'e1', replay_from: 1, gap: null, reconnect_token: 'token-1' },
});

export const resumed = (replay_from) => ({
  event: 'agent.session_created',
  session_id: 'sess_one',
  metadata: { resumed: true, epoch: 'e1', replay_from, gap: null, reconnect_token: 'token-2' },
});

export const event = (seq) => ({
  event: 'agent.note',
  session_id: 'sess_one',
  seq,
  content: seq,
  metadata: {},
});

/** Web Locks within one process, as far as tabs need them. */
export class FakeLocks {
  #holder = null;
  #queue = [];

  request(name, { ifAvailable, steal, signal } = {}, callback) {
    if (steal) {
      const holder = this.#holder;
      this.#holder = null;
      holder?.reject(new DOMException('stolen', 'AbortError'));
      return new Promise((resolve, reject) => this.#grant({ callback, resolve, reject }));
    }
    if (ifAvailable && (this.#holder || this.#queue.length > 0)) return Promise.resolve(callback(null));
    return new Promise((resolve, reject) => {
      const waiting = { callback, resolve, reject };
      signal?.addEventListener('abort', () => {
        if (!this.#queue.includes(waiting)) return;
        this.#queue.splice(this.#queue.indexOf(waiting), 1);
        reject(signal.reason);
      });
      this.#queue.push(waiting);
      this.#next();
    });
  }

  #next() {
    if (!this.#holder && this.#queue.length > 0) this.#grant(this.#queue.shift());
  }

  async #grant(waiting) {
    this.#holder = waiting;
    await null; // a browser calls back later, too
    waiting.resolve(await waiting.callback({}));
    if (this.#holder !== waiting) return;
    this.#holder = null;
    this.#next();
  }
}

/** `localStorage`. */
export class FakeArea {
  items = new Map();
  getItem = (key) => this.items.get(key) ?? null;
  setItem = (key, value) => void this.items.set(key, value);
  removeItem = (key) => void this.items.delete(key);
}
