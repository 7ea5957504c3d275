// How the dashboard is for those who see little, use a phone, or prefer the dark.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { isAccessible } from './support/axe.js';
import { launch, openTab } from './support/browser.js';
import { attach, Backend, keyed } from './support/people.js';
import { Server } from './support/server.js';

describe('the dashboard for everybody', { timeout: 120_000 }, () => {
  /** @type {Server} */
  let server;
  /** @type {string} */
  let id;
  /** @type {import('playwright-core').Browser} */
  let browser;
  /** @type {(() => unknown)[]} */
  const ends = [];
  before(async () => {
    server = await Server.start([]);
    browser = await launch();
    const backend = new Backend(server);
    for (let count = 0; count < 40; count += 1) await backend.make({ client_id: `client ${count}` });
    ({ id } = await attach({ after: (end) => ends.push(end) }, browser, server));
    await backend.publish(id, 30);
    await backend.call('POST', `/api/sessions/${id}/disconnect`);
  });
  after(async () => {
    for (const end of ends) await end();
    await browser.close();
    await server.end();
  });

  /** The views, and what is there when they are drawn.
   *  @returns {[string, (page: import('playwright-core').Page) => Promise<unknown>][]} */
  const views = () => [
    ['#/', (page) => page.getByRole('img', { name: /^Commit time: median/ }).waitFor()],
    ['#/sessions', (page) => page.getByRole('table').getByRole('link').first().waitFor()],
    [
      `#/sessions/${id}`,
      (page) => page.getByRole('group', { name: 'Attempts to come back' }).locator('td').first().waitFor(),
    ],
  ];

  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    it(`has no serious findings of axe, ${colorScheme}`, async (t) => {
      const page = await openTab(t, browser, { context: { colorScheme } });
      for (const [hash, drawn] of views()) {
        await page.goto(`${server.http}/${hash}`);
        await drawn(page);
        await isAccessible(page);
      }
      await page.getByRole('button', { name: 'End session' }).click();
      await isAccessible(page);
      const asking = await keyed(t);
      await page.goto(asking.http);
      await page.getByRole('heading', { name: 'Who is looking?' }).waitFor();
      await isAccessible(page);
    });
  }

  it('fits a phone', async (t) => {
    const page = await openTab(t, browser, { context: { viewport: { width: 375, height: 720 }, hasTouch: true } });
    for (const [hash, drawn] of views()) {
      await page.goto(`${server.http}/${hash}`);
      await drawn(page);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(over <= 0, `${hash} is ${over} pixels too wide`);
    }
  });
});
