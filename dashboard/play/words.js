// How things stand, in words.

/** @typedef {import('/assets/client/index.js').Status} Status */

/** How a connection is closed that showed a key. */
export const NOT_AUTHORISED = 4102;

/** @type {Record<string, string>} */
const STOPPED = {
  ended: 'This session was ended',
  superseded: 'Another connection has taken the session',
  closed: 'The server closed the connection for good',
  refused: 'The server refused',
  lost: 'The session is gone, and there was nothing to restore it from',
  left: 'Left; the session stays on the server',
  storage: 'This browser could not read what it had kept',
  other_tab: 'Another tab has this session',
};

/** @param {Status} status @returns {string} */
export function statusInWords(status) {
  switch (status.state) {
    case 'connecting':
      return 'Connecting…';
    case 'connected':
      return connected(status);
    case 'connection_lost':
      return 'Connection lost';
    case 'reconnecting':
      return `Reconnecting: attempt ${status.attempt}, next try in ${seconds(status.delay_ms)}`;
    case 'restoring':
      return 'The session is gone; restoring it from the saved state…';
    case 'expired':
      return 'The session has expired; beginning a new one…';
    case 'stopped': {
      const code = status.code === undefined ? '' : ` (${status.code})`;
      const why = status.code === NOT_AUTHORISED ? 'The server does not take this key' : STOPPED[status.reason];
      return `Stopped: ${why}${code}`;
    }
  }
}

/** @param {Extract<Status, { state: 'connected' }>} status */
function connected({ how, caught_up, draining }) {
  if (draining) return 'Connected; the server is about to go down';
  if (!caught_up) return 'Connected again, catching up…';
  const after = { created: '', resumed: ' again: the session goes on', restored: ' again, from the saved state' };
  return `Connected${after[how]}`;
}

/** @param {number} ms */
const seconds = (ms) => (ms < 950 ? 'less than a second' : `${(ms / 1000).toFixed(ms < 9_950 ? 1 : 0)} s`);
