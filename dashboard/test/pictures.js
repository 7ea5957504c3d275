// Pictures of the dashboard, light and dark, large and small, to look at: node pictures.js <directory>

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
for (let count = 0; count < 6; count += 1) clients.push(await attach(t, browser, server));
const [client] = clients;
await backend.publish(client.id, 25);
for (const [index, missed] of [7, 80].entries()) {
  await client.offline(true);
  await client.lost();
  await new Promise((resolve) => setTimeout(resolve, 1500 * (index + 1)));
  for (let left = missed; left > 0; left -= 10) await backend.publish(client.id, Math.min(10, left));
  await client.offline(false);
  await new Promise((resolve) => setTimeout(resolve, 3000));
}
await fetch(`${server.http}/api/sessions/${client.id}/reconnect`, { method: 'POST', body: '{"token":"none"}' });

const views = [['overview', '#/'], ['sessions', '#/sessions'], ['session', `#/sessions/${client.id}`]];
const sizes = /** @type {const} */ ([['desktop', 1280, 800], ['phone', 375, 720]]);
for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
  for (const [size, width, height] of sizes) {
    const page = await browser.newPage({ viewport: { width, height }, colorScheme, deviceScaleFactor: size === 'phone' ? 2 : 1 });
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
