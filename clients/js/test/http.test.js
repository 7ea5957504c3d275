// The calls over HTTP, against a server that answers as the test says.

import assert from 'node:assert/strict';
import { it } from 'node:test';

import { getReconnectToken, reconnectSession } from '../src/http.js';

/** A `fetch` that writes down what it was asked. */
function answering(status, body, headers = {}) {
  const asked = [];
  const fetch = async (url, init) => {
    asked.push({ url, ...init });
    return new Response(typeof body === 'string' ? body : JSON.stringify(body), { status, headers });
  };
  return { asked, fetch };
}

it('names session and token, and who is calling', async () => {
  const { asked, fetch } = answering(200, { success: true });
  await reconnectSession('sess/1', 'token-1', { baseUrl: 'https://rejoin.example/', token: 'key', fetch });
  const [{ url, method, headers, body }] = asked;
  assert.equal(url, 'https://rejoin.example/api/mcp/sessions/sess%2F1/reconnect');
  assert.deepEqual([method, body], ['POST', '{"token":"token-1"}']);
  assert.equal(headers.authorization, 'Bearer key');
});

it('a refusal says why, and when to come back', async () => {
  const { fetch } = answering(
    429,
    { detail: 'Reconnection failed: rate_limited', reason: 'rate_limited' },
    { 'retry-after': '7' },
  );
  await assert.rejects(reconnectSession('s', 't', { fetch }), {
    status: 429,
    reason: 'rate_limited',
    retryAfterSeconds: 7,
  });
});

it('an answer that is no JSON is an error all the same', async () => {
  const { fetch } = answering(502, '<html>');
  await assert.rejects(getReconnectToken('s', { fetch }), { status: 502, reason: null });
});
