// What error codes and close codes mean for a client.

/** @typedef {'create_new_session'|'export_state_again'|'retry_later'|'authenticate_again'|'fix_request'} Recovery */

/** @type {Record<Recovery, string>} */
const CODES = {
  create_new_session:
    'SESSION_NOT_FOUND SESSION_EXPIRED SESSION_INACTIVE SESSION_CLOSED STATE_EXPIRED STATE_SUPERSEDED',
  export_state_again: 'STATE_VERIFICATION_FAILED',
  retry_later:
    'SESSION_ALREADY_ACTIVE RATE_LIMITED SERVER_BUSY DATABASE_UNAVAILABLE AGENT_FAILED INTERNAL_ERROR',
  authenticate_again: 'SESSION_NOT_OWNED UNAUTHORIZED TOKEN_INVALID TOKEN_EXPIRED TOKEN_REUSED',
  fix_request:
    'MISSING_SESSION_ID INVALID_MESSAGE UNKNOWN_EVENT ACK_AHEAD MESSAGE_TOO_LARGE STATE_TOO_LARGE ID_INVALID',
};

/** @type {Map<string, Recovery>} */
const RECOVERY = new Map();
for (const recovery of /** @type {Recovery[]} */ (Object.keys(CODES))) {
  for (const code of CODES[recovery].split(' ')) RECOVERY.set(code, recovery);
}

/** An error code of a later version is the server's fault. @param {unknown} code */
export const known = (code) => (typeof code === 'string' && RECOVERY.has(code) ? code : 'INTERNAL_ERROR');

/** What can be done about an error. @param {string} code @returns {Recovery} */
export const recovery = (code) => RECOVERY.get(code) ?? 'retry_later';

/** About a snapshot, not about the session. @param {string} code */
export const isAboutState = (code) => code === 'STATE_EXPIRED' || code === 'STATE_SUPERSEDED';

/** About the reconnect token. @param {string} code */
export const isAboutToken = (code) => /^TOKEN_/.test(code);

/** Whether the server may have used the token up all the same. @param {string} code */
export const mayHaveUsedToken = (code) => code === 'DATABASE_UNAVAILABLE' || code === 'INTERNAL_ERROR';

/** Whether the server may have entered the message all the same. @param {string} code */
export const mayHaveEntered = (code) => code === 'DATABASE_UNAVAILABLE' || code === 'INTERNAL_ERROR';

export const SUPERSEDED = 4100;
export const SESSION_ENDED = 4101;

/** A frame was over the limit of the peer (RFC 6455). */
export const MESSAGE_TOO_BIG = 1009;

/**
 * Reads a close code by its range: 4100–4199 mean stop, everything else is a network's doing.
 * @param {number|null} code
 */
export const meansStop = (code) => code !== null && code >= 4100 && code <= 4199;
