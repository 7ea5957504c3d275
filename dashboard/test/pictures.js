// Pictures of the dashboard, light and dark, large and small, after SECONDS of clients that come and go:
// SECONDS=120 node pictures.js <directory>

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import { launch } from './support/browser.js';
import { attach, Backend } from './support/people.js';
import { Server } from './support/server.js';

const directory = process.argv[2] ?? 'pictures';
mkdirSync(directory, { recursive: true });

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

/** Somebody is away for a while and misses something. @param {typeof client} who @param {number} seconds @param {number} missed */
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
for (const until = Date.now() + 1000 * Number(process.env.SECONDS ?? 0); Date.now() < until; ) {
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

const views = [['overview', '#/'], ['sessions', '#/sessions'], ['session', `#/sessions/${client.id}`]];
const sizes = /** @type {const} */ ([['desktop', 1280, 800], ['phone', 375, 720]]);
for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
  for (const [size, width, height] of sizes) {
    const hasTouch = size === 'phone';
    const page = await browser.newPage({ viewport: { width, height }, colorScheme, hasTouch, isMobile: hasTouch, deviceScaleFactor: hasTouch ? 2 : 1 });
    for (const [name, hash] of views) {
      await page.goto('about:blank');
      await page.goto(`${server.http}/${hash}`);
      await page.waitForTimeout(2500);
      await page.screenshot({ path: join(directory, `${name}-${size}-${colorScheme}.png`), fullPage: name !== 'sessions' });
    }
    await page.close();
  }
}
for (const end of ends) await end();
await browser.close();
await server.end();
