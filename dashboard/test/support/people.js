// Those whom the dashboard watches: a backend that makes sessions and publishes, and a client in a tab of its own.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterwards } from './afterwards.js';
import { Server } from './server.js';

/** Calls the server over HTTP, with a key if it has one. */
export class Backend {
  /** @param {Server} server @param {string} [key] */
  constructor(server, key) {
    this.server = server;
    this.key = key;
  }

  /** @param {string} method @param {string} path @param {unknown} [body] */
  async call(method, path, body) {
    const headers = this.key ? { authorization: `Bearer ${this.key}` } : {};
    const response = await fetch(this.server.http + path, { method, headers, body: body && JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  /** Makes a session. @param {Record<string, unknown>} [client] @returns {Promise<string>} its id */
  async make(client = {}) {
    return (await this.call('POST', '/api/sessions', { client })).session_id;
  }

  /** Publishes as many events. @param {string} id @param {number} count @param {unknown} [content] */
  publish(id, count, content) {
    const events = Array.from({ length: count }, (_, number) => ({
      event: 'agent.thinking',
      content: content ?? `thought ${number + 1}`,
    }));
    return this.call('POST', `/api/sessions/${id}/events`, events);
  }

  /** @param {string} id */
  end(id) {
    return this.call('DELETE', `/api/sessions/${id}`);
  }
}

/**
 * A client of a session in a tab of its own, which comes back by itself when it is cut off.
 *
 * @param {{ after: (end: () => Promise<void>) => void }} t a test, or whoever else sees to it that it ends
 * @param {import('playwright-core').Browser} browser
 * @param {Server} server
 * @returns {Promise<{ id: string, offline: (off: boolean) => Promise<void>, lost: () => Promise<unknown> }>}
 */
export async function attach(t, browser, server) {
  const context = await browser.newContext();
  afterwards(t, () => context.close());
  const page = await context.newPage();
  await page.goto(`${server.http}/assets/shared/base.css`); // a page of the server that does nothing by itself
  const id = await page.evaluate(async (url) => {
    const { Session } = await import(/** @type {any} */ ('/assets/client/index.js'));
    const session = new Session(url, { about: { client_id: 'a tab' } });
    session.on('event', () => {}); // what is handled is acked
    Object.assign(globalThis, { session });
    const connected = new Promise((resolve) => {
      session.on(
        'status',
        (/** @type {any} */ status) => status.state === 'connected' && resolve(status.session_id),
      );
    });
    void session.connect();
    return connected;
  }, server.url);
  const lost = () =>
    page.waitForFunction(() => /** @type {any} */ (globalThis).session.status.state !== 'connected');
  return { id, offline: (off) => context.setOffline(off), lost };
}

/** What is in the rows of a table, as text. @param {import('playwright-core').Page} page @param {string} name @param {string} cell */
export const column = (page, name, cell) =>
  page.getByRole('table', { name }).locator(`.rows .row:not([hidden]) .${cell}`).allTextContents();

/** Waits until something is so. @template T @param {() => Promise<T>} read @param {T} expected */
export async function becomes(read, expected) {
  let seen;
  for (const deadline = Date.now() + 15_000; Date.now() < deadline;) {
    seen = await read();
    try {
      assert.deepEqual(seen, expected);
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  assert.deepEqual(seen, expected);
}

/** Keys by name: `root` is an administrator, `ann` and `bob` are not. */
const KEYS = { root: 'key-of-root', ann: 'key-of-ann', bob: 'key-of-bob' };

/** A server that asks for keys. @param {import('node:test').TestContext} t */
export async function keyed(t) {
  const directory = mkdtempSync(join(tmpdir(), 'rejoin-keys-'));
  const file = join(directory, 'rejoin.toml');
  const blocks = Object.entries(KEYS).map(([name, key]) => {
    const hash = createHash('sha256').update(key).digest('hex');
    return `[[api_keys]]\nname = "${name}"\nadmin = ${name === 'root'}\npublish = true\nkey_sha256 = "${hash}"\n`;
  });
  writeFileSync(file, blocks.join('\n'));
  const server = await Server.start(['--config', file]);
  afterwards(t, async () => {
    await server.end();
    rmSync(directory, { recursive: true, force: true });
  });
  return server;
}
