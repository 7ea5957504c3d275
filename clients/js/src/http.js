// The two calls of the HTTP API that a client makes without a WebSocket: to get a reconnect token for a
// session it knows, and to renew a session with one.

/**
 * @typedef {object} HttpOptions
 * @property {string} [baseUrl] where the server is, such as `https://rejoin.example` (the page's own origin)
 * @property {string} [token] an API key or a JSON web token
 * @property {typeof fetch} [fetch]
 */

/** The server said no. `reason` is one of the protocol's, such as `token_expired`. */
export class HttpError extends Error {
  /**
   * @param {number} status @param {string} message @param {string|null} reason
   * @param {number|null} retryAfterSeconds
   */
  constructor(status, message, reason, retryAfterSeconds) {
    super(message);
    this.name = 'HttpError';
    this.status = status;
    this.reason = reason;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/**
 * Renews a session with its reconnect token, which is used up; the answer brings the next one. It attaches
 * nothing and supersedes nobody.
 * @param {string} sessionId @param {string} token @param {HttpOptions} [options]
 * @returns {Promise<{ success: true, session_id: string, message: string, reconnect_count: number,
 *   generation: number, reconnect_token: string, expires_in_minutes: number }>}
 */
export function reconnectSession(sessionId, token, options = {}) {
  return call('POST', sessionId, 'reconnect', { token }, options);
}

/**
 * Gets a reconnect token for a session of the caller.
 * @param {string} sessionId @param {HttpOptions} [options]
 * @returns {Promise<{ session_id: string, reconnect_token: string, expires_in_minutes: number }>}
 */
export function getReconnectToken(sessionId, options = {}) {
  return call('GET', sessionId, 'token', null, options);
}

/**
 * @param {string} method @param {string} sessionId @param {string} what @param {unknown} body
 * @param {HttpOptions} options @returns {Promise<any>}
 */
async function call(method, sessionId, what, body, { baseUrl = '', token, fetch = globalThis.fetch }) {
  const path = `/api/mcp/sessions/${encodeURIComponent(sessionId)}/${what}`;
  const response = await fetch(baseUrl.replace(/\/$/, '') + path, {
    method,
    headers: {
      ...(token && { authorization: `Bearer ${token}` }),
      ...(body !== null && { 'content-type': 'application/json' }),
    },
    ...(body !== null && { body: JSON.stringify(body) }),
  });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  const wait = Number(response.headers.get('retry-after') ?? NaN);
  const message = answer.detail ?? answer.message ?? `the server answered ${response.status}`;
  throw new HttpError(response.status, message, answer.reason ?? null, Number.isNaN(wait) ? null : wait);
}
