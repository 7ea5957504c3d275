// Makes the pictures of the dashboard in docs/images, after some minutes of clients that come and go. With a directory,
// pictures of everything are put there to look at, also as on a phone: node pictures.js <directory>

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { launch } from './support/browser.js';
import { attach, Backend } from './support/people.js';
import { Server } from './support/server.js';

const given = process.argv[2];
const directory = given ?? fileURLToPath(new URL('../../docs/images/', import.meta.url));
mkdirSync(directory, { recursive: true });

/** How many seconds clients come and go. */
const DURATION = Number(process.env.DURATION ?? 240);

const server = await Server.start(['--buffer-size', '60']);
const browser = await launch();
/** @type {(() => Promise<void>)[]} */
const ends = [];
const t = { after: (/** @type {() => Promise<void>} */ end) => void ends.push(end) };
const backend = new Backend(server);
const names = ['web chat', 'mobile', 'terminal', 'assistant'];
const made = [];
for (let count = 0; count < 140; count += 1) {
  made.push(await backend.make({ client_id: names[count % 4], app_version: `2.${count % 7}` }));
}
for (const id of made.slice(0, 12)) await backend.end(id);
const clients = [];
for (let count = 0; count < 8; count += 1) clients.push(await attach(t, browser, server));
const [client, ...others] = clients;
const rest = (/** @type {number} */ seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

/** Somebody is away for a while and misses something.
 *  @param {typeof client} who @param {number} seconds @param {number} missed */
async function away(who, seconds, missed) {
  await who.offline(true);
  await who.lost();
  for (let left = missed; left > 0; left -= 10) await backend.publish(who.id, Math.min(10, left));
  await rest(seconds);
  await who.offline(false);
  await rest(1);
}

await backend.publish(client.id, 25);
await away(client, 2, 7);
for (const until = Date.now() + 1000 * DURATION; Date.now() < until;) {
  const who = others[Math.floor(Math.random() * others.length)];
  if (Math.random() < 0.6) await backend.call('POST', `/api/sessions/${who.id}/disconnect`);
  else await away(who, Math.random() * 6, Math.floor(Math.random() * 60));
  if (Math.random() < 0.2) await backend.make({ client_id: names[0], app_version: '2.9' });
  if (Math.random() < 0.1) await present(who.id, 'none');
  await rest(Math.random() * 2);
}
await away(client, 3, 80);
await present(client.id, 'none');

/** Somebody tries a token. @param {string} id @param {string} token */
function present(id, token) {
  return fetch(`${server.http}/api/sessions/${id}/reconnect`, { method: 'POST', body: JSON.stringify({ token }) });
}

const views = [
  ['overview', '#/'],
  ['session', `#/sessions/${client.id}`],
  ['sessions', '#/sessions'],
];
const sizes = /** @type {const} */ ([
  ['', 1280, 800],
  ['-phone', 375, 720],
]);
for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
  for (const [size, width, height] of given ? sizes : sizes.slice(0, 1)) {
    const phone = size ? { hasTouch: true, isMobile: true, deviceScaleFactor: 2 } : {};
    const page = await browser.newPage({ viewport: { width, height }, colorScheme, ...phone });
    for (const [name, hash] of given ? views : views.slice(0, 2)) {
      await page.goto('about:blank');
      await page.goto(`${server.http}/${hash}`);
      await page.waitForTimeout(2500);
      const path = join(directory, `dashboard-${name}${size}-${colorScheme}.png`);
      await page.screenshot({ path, fullPage: name !== 'sessions', animations: 'disabled' });
      console.log(path);
    }
    await page.close();
  }
}
for (const end of ends) await end();
await browser.close();
await server.end();
