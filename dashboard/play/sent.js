// What was said in this browser, so that a page that is loaded again can show it before the server does. What the
// server has not accepted yet is sent again, under the same id, and so entered once.

const NAME = 'rejoin-play-sent';
const KEPT = 100;

/** @typedef {{ id: string, text: string, accepted: boolean }} Sent */

/** @returns {Sent[]} oldest first */
export function allSent() {
  try {
    return JSON.parse(localStorage.getItem(NAME) ?? '[]');
  } catch {
    return []; // of another version
  }
}

/** @param {string} id @param {string} text */
export function keep(id, text) {
  write([...allSent().filter((one) => one.id !== id), { id, text, accepted: false }]);
}

/** @param {string} id */
export function accepted(id) {
  write(allSent().map((one) => (one.id === id ? { ...one, accepted: true } : one)));
}

/** @param {string} id */
export function forget(id) {
  write(allSent().filter((one) => one.id !== id));
}

/** @param {Sent[]} sent */
const write = (sent) => localStorage.setItem(NAME, JSON.stringify(sent.slice(-KEPT)));
