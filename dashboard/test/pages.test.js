// Every page, in a browser: it loads, says nothing on the console, and its policy holds.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { launch, openTab } from './support/browser.js';
import { Server } from './support/server.js';

describe('pages', { timeout: 60_000 }, () => {
  /** @type {Server} */
  let server;
  /** @type {import('playwright-core').Browser} */
  let browser;
  before(async () => {
    server = await Server.start([]);
    browser = await launch();
  });
  after(async () => {
    await browser.close();
    await server.end();
  });

  it('draws a table of events whose oldest have gone since it was last drawn', async (t) => {
    const page = await openTab(t, browser);
    await page.goto(`${server.http}/`);
    const last = await page.evaluate(async () => {
      const { Events } = await import(/** @type {string} */ ('/assets/home/events.js'));
      const nobody = () => {};
      const events = new Events('none', { arrived: nobody, ended: nobody, failed: nobody });
      document.body.append(events.element);
      const sent = Array.from({ length: 4001 }, (_, n) => ({
        kind: 'event',
        seq: n + 1,
        position: `${n + 1}`,
        data: JSON.stringify({ event: 'agent.thinking', seq: n + 1, timestamp: '2026-11-16T11:00:00Z' }),
      }));
      events.take(sent.slice(0, 4000));
      events.draw();
      events.take(sent.slice(4000)); // more than are kept: the oldest go
      events.rows.draw(); // as when somebody scrolls before the next drawing
      events.draw();
      const seqs = [...events.element.querySelectorAll('.rows .row:not([hidden]) .seq')];
      events.close();
      return Math.max(...seqs.map((cell) => Number(cell.textContent)));
    });
    assert.equal(last, 4001);
  });

  for (const path of ['/', '/play']) {
    it(`${path} loads everything it needs and has nothing to complain about`, async (t) => {
      const page = await openTab(t, browser);
      const failed = [];
      page.on('response', (response) => response.status() >= 400 && failed.push(response.url()));
      await page.goto(server.http + path, { waitUntil: 'load' });
      assert.match(await page.title(), /Rejoin/);
      assert.deepEqual(failed, []);
    });
  }

  it('a script that did not come as a file does not run', async (t) => {
    const page = await openTab(t, browser, { tolerate: /Content Security Policy|TrustedScript/ });
    await page.goto(server.http);
    const violated = await page.evaluate(async () => {
      const violation = new Promise((resolve) =>
        document.addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective)),
      );
      try {
        const script = document.createElement('script');
        script.textContent = 'globalThis.ran = true';
        document.body.append(script);
      } catch {} // refused as soon as that
      return [await violation, 'ran' in globalThis];
    });
    assert.deepEqual(violated, ['require-trusted-types-for', false]);
  });

  it('the theme is the system’s until another is chosen, and stays chosen', async (t) => {
    const page = await openTab(t, browser, { context: { colorScheme: 'light' } });
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.goto(server.http);
    const light = await paper();
    await page.emulateMedia({ colorScheme: 'dark' });
    const dark = await paper();
    assert.notEqual(dark, light);
    await page.getByRole('button', { name: 'Dark' }).click();
    assert.equal(await paper(), light);
    await page.reload();
    assert.equal(await paper(), light);
  });
});
