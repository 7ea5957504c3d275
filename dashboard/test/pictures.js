// Makes the pictures of the dashboard in docs/images, after some minutes of clients that come and go. Pictures of every
// page to look at are made by `gallery.js`.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { launch } from './support/browser.js';
import { attach, Backend } from './support/people.js';
import { Server } from './support/server.js';

const directory = fileURLToPath(new URL('../../docs/images/', import.meta.url));
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
const ask = () =>
  backend.call('POST', `/api/sessions/${client.id}/messages`, { content: 'What becomes of this question?' });
await ask();
await rest(1);
await backend.call('POST', `/api/sessions/${client.id}/restart`);
await rest(8); // for the successor to answer it

/** Somebody tries a token. @param {string} id @param {string} token */
function present(id, token) {
  return fetch(`${server.http}/api/sessions/${id}/reconnect`, { method: 'POST', body: JSON.stringify({ token }) });
}

const views = [
  ['overview', '#/'],
  ['session', `#/sessions/${client.id}`],
];
for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme });
  for (const [name, hash] of views) {
    await page.goto('about:blank');
    await page.goto(`${server.http}/${hash}`);
    await page.waitForTimeout(2500);
    if (name === 'session') await ask();
    await page.waitForTimeout(2000); // so that the question is seen, with the beginning of its answer
    const path = join(directory, `dashboard-${name}-${colorScheme}.png`);
    await page.screenshot({ path, fullPage: true, animations: 'disabled' });
    console.log(path);
  }
  await page.close();
}
for (const end of ends) await end();
await browser.close();
await server.end();
