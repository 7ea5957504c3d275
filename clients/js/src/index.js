// Everything for browsers and Node but the entries that need more: `file.js` (Node) and `react.js`.

export { SessionError } from './errors.js';
export { Session } from './session.js';
export { LocalStorage, MemoryStorage } from './storage.js';
export { getReconnectToken, HttpError, reconnectSession } from './http.js';

/** @typedef {import('./session.js').SessionOptions} SessionOptions */
/** @typedef {import('./session.js').Status} Status */
/** @typedef {import('./session.js').Accepted} Accepted */
/** @typedef {import('./session.js').State} State */
/** @typedef {import('./session.js').SessionEvents} SessionEvents */
/** @typedef {import('./storage.js').Storage} Storage */
/** @typedef {import('./machine.js').Saved} Saved */
/** @typedef {import('./frames.js').Frame} Frame */
/** @typedef {import('./delivery.js').Gap} Gap */
