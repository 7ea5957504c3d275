// Who sees what on the dashboard of a server that asks for keys.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { afterwards } from './support/afterwards.js';
import { launch, openTab } from './support/browser.js';
import { Backend, keyed } from './support/people.js';

/** @typedef {import('playwright-core').Page} Page */

describe('the dashboard and keys', { timeout: 120_000 }, () => {
  /** @type {import('playwright-core').Browser} */
  let browser;
  before(async () => {
    browser = await launch();
  });
  after(() => browser.close());

  /** @param {Page} page @param {string} key */
  async function enter(page, key) {
    await page.getByLabel('API key or token').fill(key);
    await page.getByRole('button', { name: 'Look' }).click();
  }

  it('asks for a key without a complaint, says what is wrong with one, and takes a good one', async (t) => {
    const server = await keyed(t);
    const page = await openTab(t, browser, { tolerate: /401/ });
    /** @type {string[]} */
    const complaints = [];
    page.on('console', (message) => complaints.push(message.text()));
    await page.goto(server.http);
    await page.getByRole('heading', { name: 'Who is looking?' }).waitFor();
    assert.deepEqual(complaints, []);
    await enter(page, 'no-such-key');
    await page.getByRole('alert').filter({ hasText: 'The server does not know this key.' }).waitFor();
    await enter(page, 'a key');
    await page.getByText('A key consists of printable ASCII characters without spaces.').waitFor();
    await enter(page, 'key-of-ann');
    await page.getByRole('link', { name: 'Sessions' }).waitFor();
    await page.getByText('ann', { exact: true }).waitFor();
  });

  it('keeps the key for the tab alone, and forgets it when told to', async (t) => {
    const server = await keyed(t);
    const context = await browser.newContext();
    afterwards(t, () => context.close());
    const page = await openTab(t, context);
    await page.goto(server.http);
    await enter(page, 'key-of-root');
    await page.getByText('root (admin)').waitFor();
    await page.reload();
    await page.getByText('root (admin)').waitFor();
    const kept = await page.evaluate(() => JSON.stringify({ ...localStorage }) + document.cookie);
    assert.ok(!kept.includes('key-of-root'), kept);
    const other = await openTab(t, context);
    await other.goto(server.http);
    await other.getByRole('heading', { name: 'Who is looking?' }).waitFor();
    await page.getByRole('button', { name: 'Forget key' }).click();
    await page.getByRole('heading', { name: 'Who is looking?' }).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: 'Who is looking?' }).waitFor();
  });

  it('shows nothing of other principals to who is no administrator', async (t) => {
    const server = await keyed(t);
    const [ann, bob] = [new Backend(server, 'key-of-ann'), new Backend(server, 'key-of-bob')];
    const [anns, bobs] = [await ann.make({ client_id: 'of ann' }), await bob.make({ client_id: 'of bob' })];
    const page = await openTab(t, browser, { tolerate: /404/ });
    /** @type {string[]} */
    const received = [];
    page.on('response', async (response) => {
      if (response.url().includes('/api/')) received.push(await response.text().catch(() => ''));
    });
    await page.goto(server.http);
    await enter(page, 'key-of-ann');
    await page.getByText('concern everybody’s sessions').waitFor();
    await page.getByRole('img', { name: 'Sessions: parked 1, attached 0' }).waitFor();
    assert.equal(await page.getByRole('img').filter({ visible: true }).count(), 1, 'one plot');
    await page.getByRole('link', { name: 'Sessions' }).click();
    await page.getByText('1 session', { exact: true }).waitFor();
    await page.getByRole('link', { name: anns }).waitFor();
    await page.getByRole('searchbox').fill('of bob');
    await page.getByText('Nothing found.').waitFor();
    await page.goto(`${server.http}/#/sessions/${bobs}`);
    await page.getByText('There is no such session').waitFor();
    assert.ok(received.length > 4);
    for (const text of received) assert.ok(!text.includes(bobs) && !text.includes('of bob'), text);
  });

  it('shows everything to an administrator', async (t) => {
    const server = await keyed(t);
    const bobs = await new Backend(server, 'key-of-bob').make();
    const page = await openTab(t, browser);
    await page.goto(server.http);
    await enter(page, 'key-of-root');
    await page.getByRole('img', { name: /^Commit time/ }).waitFor();
    await page.goto(`${server.http}/#/sessions/${bobs}`);
    await page.getByRole('button', { name: 'End session' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'End session' }).click();
    await page.getByText('closed (user)').waitFor();
  });
});
