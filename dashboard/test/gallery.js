// Pictures of every page to look at, light and dark, wide and as on a phone, on a server without sessions and on one with
// 2,000: node gallery.js [directory], by default target/screenshots.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { launch } from './support/browser.js';
import { mortal } from './support/mortal.js';
import { attach, Backend, becomes, keyed } from './support/people.js';
import { Server } from './support/server.js';

const directory = process.argv[2] ?? fileURLToPath(new URL('../../target/screenshots/', import.meta.url));
mkdirSync(directory, { recursive: true });

const SESSIONS = 2000;

const SIZES = /** @type {const} */ ([
  ['wide', { viewport: { width: 1280, height: 800 } }],
  ['390', { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 }],
]);

/** @typedef {import('playwright-core').Page} Page */
/** @typedef {[name: string, path: string, drawn: (page: Page) => Promise<unknown>]} View */

/** @type {(() => unknown)[]} */
const ends = [];
const t = { after: (/** @type {() => unknown} */ end) => void ends.push(end) };
const browser = await launch();

/** Takes pictures of views in all sizes and colours; says which of them are too wide.
 *  @param {string} group @param {Server} server @param {View[]} views */
async function take(group, server, views) {
  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    for (const [size, options] of SIZES) {
      const context = await browser.newContext({ colorScheme, ...options });
      for (const [name, path, drawn] of views) {
        const page = await context.newPage();
        await page.goto(server.http + path);
        await drawn(page);
        // A phone zooms out from what is too wide: its own width counts, not that of the page's window.
        const over = (await page.evaluate(() => document.documentElement.scrollWidth)) - options.viewport.width;
        const file = `${group}-${name}-${size}-${colorScheme}.png`;
        await page.screenshot({ path: join(directory, file), fullPage: name !== 'sessions', animations: 'disabled' });
        console.log(file, over > 0 ? `IS ${over} PIXELS TOO WIDE` : '');
        if (over > 0) process.exitCode = 1;
        await page.close();
      }
      await context.close();
    }
  }
}

/** @param {string} id @returns {View} */
const unknown = (id) => ['unknown', `/#/sessions/${id}`, (page) => page.getByText('Unknown session').waitFor()];

/** @returns {View} */
const play = () => ['play', '/play', (page) => page.getByText('Connected').first().waitFor()];

const empty = await Server.start([]);
await take('empty', empty, [
  ['overview', '/', (page) => page.getByText('No sessions yet').waitFor()],
  ['sessions', '/#/sessions', (page) => page.getByText('No sessions yet').waitFor()],
  unknown('sess_nobody'),
]);
await take('empty', empty, [play()]); // at last, because it makes sessions
await empty.end();

const asking = await keyed(t);
await take('keys', asking, [['ask', '/', (page) => page.getByText('Who is looking?').waitFor()]]);

const full = await Server.start(['--agent', mortal(t), '--buffer-size', '60']);
const backend = new Backend(full);
const names = ['web chat', 'mobile', 'terminal', 'an assistant with a name that is longer than any column is wide'];
const making = Array.from({ length: 20 }, async (_, lane) => {
  for (let count = 0; count < SESSIONS / 20; count += 1) {
    const id = await backend.make({ client_id: names[count % 4], app_version: `2.${lane}` });
    if (count % 10 === 0) await backend.end(id);
  }
});
await Promise.all(making);
const client = await attach(t, browser, full);
await backend.publish(client.id, 25);
await client.offline(true);
await client.lost();
for (let round = 0; round < 6; round += 1) await backend.publish(client.id, 15);
await client.offline(false);
const ask = (/** @type {string} */ content) =>
  backend.call('POST', `/api/sessions/${client.id}/messages`, { content });
const head = async () => (await backend.call('GET', `/api/sessions/${client.id}`)).last_seq;
for (const question of ['What is a lease?', 'die', 'And what does a long question look like in one line? '.repeat(4)]) {
  const before = await head();
  await ask(question);
  await becomes(head, before + 2);
}
await full.killAndRestart(); // what is known is known after a restart too
await becomes(async () => (await backend.call('GET', `/api/sessions/${client.id}`)).attached, true);

/** @param {Page} page */
async function openState(page) {
  await page.getByText('Agent died').waitFor();
  await page.locator('.events .asked').first().waitFor();
  await page.getByText('What the agent has stored').click();
  await page.getByText(/^As of event/).waitFor();
}
await take('2000', full, [
  ['overview', '/', (page) => page.getByRole('img', { name: /^Commit time: median/ }).waitFor()],
  ['sessions', '/#/sessions', (page) => page.getByRole('table').getByRole('link').first().waitFor()],
  ['session', `/#/sessions/${client.id}`, openState],
  unknown(`sess_${'x'.repeat(60)}`),
  play(),
]);
for (const end of ends) await end();
await full.end();
await browser.close();
