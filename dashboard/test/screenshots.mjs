// Makes the pictures of the documentation: each page as it looks when something has just happened to it, light
// and dark.

import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { launch } from './support/browser.js';
import { Server } from './support/server.js';

const images = fileURLToPath(new URL('../../docs/images/', import.meta.url));

/** What is to be seen, by the name of the picture. @type {Record<string, (page: import('playwright-core').Page, http: string) => Promise<void>>} */
const PICTURES = {
  async playground(page, http) {
    await page.goto(`${http}/play`);
    await page.getByRole('button', { name: 'Ask', exact: true }).click();
    await page.waitForFunction(() => (document.querySelector('.answer')?.childNodes.length ?? 0) >= 5);
    const cut = page.getByRole('switch', { name: 'Cut the connection' });
    await cut.click();
    await page.waitForTimeout(2_000); // for something to be replayed
    await cut.click();
    await page.locator('.turn.complete').waitFor();
    await page.mouse.move(0, 0);
  },
};

mkdirSync(images, { recursive: true });
const server = await Server.start([]);
const browser = await launch();
for (const [name, prepare] of Object.entries(PICTURES)) {
  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    const context = await browser.newContext({ colorScheme, viewport: { width: 1120, height: 880 } });
    const page = await context.newPage();
    await prepare(page, server.http);
    await page.evaluate(() => /** @type {HTMLElement} */ (document.activeElement)?.blur());
    await page.screenshot({ path: `${images}${name}-${colorScheme}.png`, animations: 'disabled' });
    await context.close();
    console.log(`docs/images/${name}-${colorScheme}.png`);
  }
}
await browser.close();
await server.end();
