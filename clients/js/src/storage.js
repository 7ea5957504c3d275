// Where a client keeps what it needs to come back after a reload or a restart: the session's id, the
// position, the reconnect token and the signed state. It holds credentials: whoever can read it can take
// the session over where the server asks for nothing else. For a file see `file.js`.

/** @typedef {import('./machine.js').Saved} Saved */
/**
 * A place that outlives a `Session`. One session uses it at a time.
 *
 * `load` gives what was saved last, or null. `save` keeps this in place of what was kept before, all or
 * nothing; when it is done, the server may be told to forget what it covers. Both may be asynchronous.
 * `key` names the place among the tabs of a browser; a place without one belongs to this tab alone.
 *
 * @typedef {{ load(): Saved|null|Promise<Saved|null>, save(saved: Saved): void|Promise<void>, key?: string }} Storage
 */

/** Keeps in memory, for sessions that need not outlive the page or the program. @implements {Storage} */
export class MemoryStorage {
  /** @type {Saved|null} */
  #saved;

  /** @param {Saved|null} [saved] what is in it already, such as the id of a session to join */
  constructor(saved = null) {
    this.#saved = saved;
  }

  load() {
    return this.#saved;
  }

  /** @param {Saved} saved */
  save(saved) {
    this.#saved = saved;
  }
}

/** Keeps in the browser's `localStorage`, for all tabs of the origin. @implements {Storage} */
export class LocalStorage {
  #area;

  /** @param {string} [key] which session, if a page has several @param {globalThis.Storage} [area] */
  constructor(key = 'rejoin', area = globalThis.localStorage) {
    this.key = key;
    this.#area = area;
  }

  /** What can't be read was written by another version: the session begins anew. @returns {Saved|null} */
  load() {
    const text = this.#area.getItem(this.key);
    try {
      return text === null ? null : JSON.parse(text);
    } catch {
      return null;
    }
  }

  /** @param {Saved} saved */
  save(saved) {
    if (saved.session_id === null && saved.snapshot === null) this.#area.removeItem(this.key);
    else this.#area.setItem(this.key, JSON.stringify(saved));
  }
}

/** Saves, and knows whether that works: what is not saved must not be acked. */
export class Keeper {
  failed = false;
  #storage;
  #told;

  /** @param {Storage} storage @param {(error: Error) => void} told of the first failure in a row */
  constructor(storage, told) {
    this.#storage = storage;
    this.#told = told;
  }

  /** @param {Saved} saved @returns {void|Promise<void>} */
  save(saved) {
    try {
      const done = this.#storage.save(saved);
      if (done)
        return done.then(
          () => void (this.failed = false),
          (error) => this.#fail(error),
        );
      this.failed = false;
    } catch (error) {
      this.#fail(error);
    }
  }

  /** @param {unknown} error */
  #fail(error) {
    if (!this.failed) this.#told(error instanceof Error ? error : new Error(String(error)));
    this.failed = true;
  }
}
