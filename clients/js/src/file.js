// Keeps a session in a file, for programs under Node. Only its owner can read it.

import { open, readFile, rename, unlink } from 'node:fs/promises';

/** @typedef {import('./machine.js').Saved} Saved */

/** @typedef {import('./storage.js').Storage} Storage */

/** @implements {Storage} */
export class FileStorage {
  #path;
  /** The save that is under way: one at a time. @type {Promise<unknown>} */
  #last = Promise.resolve();

  /** @param {string} path */
  constructor(path) {
    this.#path = path;
  }

  /** A damaged file is an error: to begin anew would abandon a session that lives.
   *  @returns {Promise<Saved|null>} */
  async load() {
    try {
      return JSON.parse(await readFile(this.#path, 'utf8'));
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code === 'ENOENT') return null;
      throw error;
    }
  }

  /** @param {Saved} saved @returns {Promise<void>} */
  save(saved) {
    const done = this.#last.then(() => this.#write(saved));
    this.#last = done.catch(() => {});
    return done;
  }

  /** All or nothing: written beside it, synced, and put in its place. @param {Saved} saved */
  async #write(saved) {
    const beside = `${this.#path}.new`;
    const file = await open(beside, 'w', 0o600);
    try {
      await file.writeFile(JSON.stringify(saved));
      await file.sync();
    } catch (error) {
      await file.close();
      await unlink(beside).catch(() => {});
      throw error;
    }
    await file.close();
    await rename(beside, this.#path);
  }
}
