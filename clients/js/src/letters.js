// Messages of the application, and those who wait to hear what became of them. They outlive the machine:
// what was not answered when this tab lost the session is sent when it has it again.

import { SessionError } from './errors.js';
import { MAX_UNACCEPTED } from './limits.js';

/** A message that the server has: it is in the in log, once. @typedef {{ message_id: string, in_seq: number }} Accepted */
/** @template T @typedef {{ resolve: (value: T) => void, reject: (error: Error) => void }} Waiter */
/** @typedef {{ content?: unknown, promise: Promise<Accepted> } & Waiter<Accepted>} Letter */

export class Letters {
  /** @type {Map<string, Letter>} */
  #letters = new Map();
  #max;

  /** @param {number} [max] */
  constructor(max = MAX_UNACCEPTED) {
    this.#max = max;
  }

  /**
   * Keeps a letter; without content it is a cancellation. The same id is the same letter.
   * @param {string} messageId @param {unknown} content
   * @returns {{ promise: Promise<Accepted>, isNew: boolean }}
   */
  add(messageId, content) {
    const known = this.#letters.get(messageId);
    if (known) return { promise: known.promise, isNew: false };
    if (this.#letters.size >= this.#max) return { promise: refused('outbox_full'), isNew: false };
    const waiter = deferred();
    this.#letters.set(messageId, { content, ...waiter });
    return { promise: waiter.promise, isNew: true };
  }

  /** All of them, in their order, for a machine that knows of none. @returns {import('./machine.js').Input[]} */
  inputs() {
    return [...this.#letters].map(([message_id, { content }]) => asInput(message_id, content));
  }

  /** Takes out one that is answered for. @param {string} messageId */
  take(messageId) {
    const letter = this.#letters.get(messageId);
    this.#letters.delete(messageId);
    return letter;
  }

  /** None will be answered for. @param {Error} error */
  rejectAll(error) {
    for (const { reject } of this.#letters.values()) reject(error);
    this.#letters.clear();
  }
}

/** @param {string} message_id @param {unknown} content @returns {import('./machine.js').Input} */
export const asInput = (message_id, content) =>
  content === undefined ? { type: 'cancel', message_id } : { type: 'send', message_id, content };

/** @param {string} reason */
export function refused(reason) {
  const { promise, reject } = deferred();
  reject(new SessionError(reason));
  return promise;
}

export const newMessageId = () =>
  `msg_${Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('')}`;

/** A promise that nobody has to look at: what goes wrong is told to listeners as well.
 *  @returns {{ promise: Promise<any>, resolve: (value: any) => void, reject: (error: Error) => void }} */
export function deferred() {
  /** @type {any} */
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  parts.promise.catch(() => {});
  return parts;
}
