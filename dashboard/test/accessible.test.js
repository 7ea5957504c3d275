// axe finds nothing serious on any page, light or dark, wide or narrow, at rest or in trouble.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { isAccessible } from './support/axe.js';
import { launch } from './support/browser.js';
import { Playground } from './support/playground.js';
import { Server } from './support/server.js';

describe('the playground is accessible', { timeout: 120_000 }, () => {
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

  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    for (const viewport of [
      { width: 1200, height: 900 },
      { width: 360, height: 740 },
    ]) {
      it(`${colorScheme}, ${viewport.width} pixels wide`, async (t) => {
        const play = await Playground.open(t, browser, server.http, { context: { colorScheme, viewport } });
        await play.says('Connected');
        await isAccessible(play.page);
        await play.ask('Can everybody read this?');
        await play.isWriting();
        await play.cutSwitch().click();
        await play.says(/^Reconnecting/);
        await isAccessible(play.page);
        await play.cutSwitch().click();
        await play.isComplete();
        await play.page.getByRole('button', { name: 'Send it all again' }).click();
        await isAccessible(play.page);
        await play.page.getByRole('button', { name: 'Sleep 90 seconds' }).click();
        await isAccessible(play.page);
        const width = await play.page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(width <= viewport.width, `nothing sticks out: ${width}`);
      });
    }
  }
});
