// The dashboard, driven as a person does: the list, a session's page, the buttons on it.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { afterwards } from './support/afterwards.js';
import { launch, openTab } from './support/browser.js';
import { attach, Backend, becomes, column } from './support/people.js';
import { Server } from './support/server.js';

/** @typedef {import('playwright-core').Page} Page */

describe('the dashboard', { timeout: 240_000 }, () => {
  /** @type {Server} */
  let server;
  /** @type {Backend} */
  let backend;
  /** @type {import('playwright-core').Browser} */
  let browser;
  before(async () => {
    server = await Server.start(['--buffer-size', '20']);
    backend = new Backend(server);
    browser = await launch();
  });
  after(async () => {
    await browser.close();
    await server.end();
  });

  /** @param {import('node:test').TestContext} t @param {string} [hash]
   *  @param {Parameters<typeof openTab>[2]} [options] */
  async function open(t, hash = '', options = {}) {
    const page = await openTab(t, browser, options);
    await page.goto(`${server.http}/${hash}`);
    return page;
  }

  /** @param {Page} page @param {string} name */
  const filter = (page, name) => page.getByRole('group', { name: 'State' }).getByRole('button', { name });

  it('lists sessions by state, and shows by itself what changes', async (t) => {
    const mark = `live-${Date.now()}`;
    const [one, other] = [await backend.make({ client_id: mark }), await backend.make({ client_id: mark })];
    const page = await open(t, `#/sessions?q=${mark}`);
    await becomes(async () => (await column(page, 'Sessions', 'id')).toSorted(), [one, other].toSorted());
    assert.deepEqual(await column(page, 'Sessions', 'state'), ['parked', 'parked']);
    await backend.end(one);
    await becomes(async () => (await column(page, 'Sessions', 'state')).toSorted(), ['closed', 'parked']);
    await filter(page, 'Closed').click();
    await becomes(() => column(page, 'Sessions', 'id'), [one]);
    await filter(page, 'Attached').click();
    await page.getByText('Nothing found.').waitFor();
    await page.reload();
    assert.equal(await filter(page, 'Attached').getAttribute('aria-pressed'), 'true');
    await page.getByText('Nothing found.').waitFor();
    await filter(page, 'All').click();
    await becomes(async () => (await column(page, 'Sessions', 'id')).length, 2);
    await page.getByText(`2 sessions with “${mark}”`).waitFor();
  });

  it('finds sessions by parts of their ids and of what clients say, while one types', async (t) => {
    const id = await backend.make({ client_id: 'needle in a haystack' });
    for (let count = 0; count < 30; count += 1) await backend.make({ client_id: 'hay' });
    const page = await open(t, '#/sessions');
    const search = page.getByRole('searchbox', { name: 'Search sessions' });
    await search.fill('NEEDLE in');
    await becomes(() => column(page, 'Sessions', 'id'), [id]);
    await search.fill(id.slice(6, 20));
    await becomes(() => column(page, 'Sessions', 'id'), [id]);
    await search.fill('no such thing');
    await page.getByText('Nothing found.').waitFor();
    await search.fill('hay');
    await page.getByText('31 sessions with “hay”').waitFor();
  });

  it('is walked through with the keyboard alone', async (t) => {
    const mark = `keys-${Date.now()}`;
    for (let count = 0; count < 60; count += 1) await backend.make({ client_id: mark });
    const page = await open(t);
    const focused = () => page.evaluate(() => document.activeElement?.textContent ?? '');
    await page.getByRole('link', { name: 'Sessions' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('searchbox').waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type(mark);
    await page.getByText(`60 sessions with “${mark}”`).waitFor();
    const ids = (await backend.call('GET', `/api/sessions/search?q=${mark}&limit=60`)).sessions.map(
      (/** @type {{ session_id: string }} */ record) => record.session_id,
    );
    await page.getByRole('table', { name: 'Sessions' }).focus();
    await page.keyboard.press('ArrowDown');
    assert.equal(await focused(), ids[0]);
    await page.keyboard.press('ArrowDown');
    assert.equal(await focused(), ids[1]);
    await page.keyboard.press('End');
    await becomes(focused, ids[59]);
    await page.keyboard.press('ArrowUp');
    assert.equal(await focused(), ids[58]);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: ids[58] }).waitFor();
    await page.goBack();
    await becomes(() => page.getByRole('searchbox').inputValue(), mark);
  });

  it('draws only what is on the screen, however many there are', async (t) => {
    const mark = `many-${Date.now()}`;
    const make = async () => {
      for (let count = 0; count < 50; count += 1) await backend.make({ client_id: mark });
    };
    await Promise.all(Array.from({ length: 24 }, make));
    const page = await open(t, `#/sessions?q=${mark}`);
    await page.getByText(`1,200 sessions with “${mark}”`).waitFor();
    const table = page.getByRole('table', { name: 'Sessions' });
    assert.equal(await table.getAttribute('aria-rowcount'), '1201');
    const { sessions } = await backend.call('GET', `/api/sessions/search?q=${mark}&offset=1199&limit=1`);
    await table.focus();
    await page.keyboard.press('End');
    await table.getByRole('link', { name: sessions[0].session_id }).waitFor();
    assert.ok((await table.locator('.row').count()) < 60);
    assert.ok((await column(page, 'Sessions', 'id')).every((id) => id !== '…'));
  });

  it('shows events as they come, how full the buffer is, and one of them whole', async (t) => {
    const id = await backend.make();
    await backend.publish(id, 2);
    const page = await open(t, `#/sessions/${id}`);
    await becomes(() => column(page, 'Events', 'content'), ['thought 1', 'thought 2']);
    await backend.publish(id, 1, '<img src=x onerror=alert(1)>');
    await becomes(() => column(page, 'Events', 'seq'), ['1', '2', '3']);
    const meter = page.getByRole('meter', { name: 'Buffer' });
    await becomes(() => meter.getAttribute('aria-valuenow'), '15');
    await page.getByRole('button', { name: '3', exact: true }).click();
    const whole = JSON.parse((await page.getByRole('group', { name: 'The entry, whole' }).textContent()) ?? '');
    assert.deepEqual([whole.seq, whole.content], [3, '<img src=x onerror=alert(1)>']);
    assert.equal(await page.locator('main img').count(), 0);
    await backend.publish(id, 1);
    await page.getByText('1 more since then').waitFor();
    await page.getByRole('button', { name: 'Follow' }).click();
    await becomes(async () => (await column(page, 'Events', 'seq')).at(-1), '4');
  });

  it('cuts a connection; the timeline tells of the return, of replays, gaps and generations', async (t) => {
    const client = await attach(t, browser, server);
    const page = await open(t, `#/sessions/${client.id}`);
    const moments = () => page.getByRole('group', { name: 'What happened' }).locator('li').allTextContents();
    const told = async () => (await moments()).map((text) => text.replace(/^.*?\d\d:\d\d:\d\d/, ''));
    await becomes(told, ['Attachedgeneration 1 over websocket', 'Made']);

    await page.getByRole('button', { name: 'Cut the connection' }).click();
    await page.getByText('The connection is cut; the session goes on.').waitFor();
    await becomes(async () => /^Resumedgeneration 2.* away, nothing missed$/.test((await told())[0]), true);
    assert.equal((await told())[1], 'Parkedgeneration 1');

    await client.offline(true);
    await becomes(async () => (await told())[0], 'Parkedgeneration 2');
    assert.equal(await page.getByRole('button', { name: 'Cut the connection' }).isDisabled(), true);
    await backend.publish(client.id, 3);
    await client.offline(false);
    await becomes(async () => /^Resumedgeneration 3.* away, 3 events replayed$/.test((await told())[0]), true);

    await client.offline(true);
    await becomes(async () => (await told())[0], 'Parkedgeneration 3');
    for (let round = 0; round < 3; round += 1) await backend.publish(client.id, 15);
    await client.offline(false);
    const gap = /^Resumedgeneration 4.* 20 events replayed, gap: 4 to 28 evicted, 25 events lost$/;
    await becomes(async () => gap.test((await told())[0]), true);
    await page.getByRole('img', { name: /^Attached 4 times/ }).waitFor();
    const audit = page.getByRole('group', { name: 'Attempts to come back' });
    await becomes(() => audit.locator('td .good').allTextContents(), ['reconnected', 'reconnected', 'reconnected']);
    const tokens = page.getByRole('group', { name: 'Tokens' }).locator('li');
    assert.match((await tokens.first().textContent()) ?? '', /^live expires in 1[45] min/);
  });

  it('asks for the state', async (t) => {
    const id = await backend.make();
    await backend.publish(id, 2);
    const page = await open(t, `#/sessions/${id}`);
    await page.getByRole('button', { name: 'Ask for state' }).click();
    await page.getByText(/^State as of event 0, sealed, .* good for 24 h\./).waitFor();
  });

  it('ends a session once one is sure', async (t) => {
    const client = await attach(t, browser, server);
    const page = await open(t, `#/sessions/${client.id}`);
    const end = page.getByRole('button', { name: 'End session', exact: true });
    await end.click();
    const dialog = page.getByRole('dialog', { name: 'End this session?' });
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    assert.equal((await backend.call('GET', `/api/sessions/${client.id}`)).status, 'active');
    await end.click();
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    await end.click();
    await dialog.getByRole('button', { name: 'End session' }).click();
    await page.getByText('The session has ended.').waitFor();
    await page.getByText('closed (user)').waitFor();
    for (const name of ['Cut the connection', 'Ask for state', 'End session']) {
      assert.equal(await page.getByRole('button', { name, exact: true }).isDisabled(), true, name);
    }
    await client.lost();
    const first = page.getByRole('group', { name: 'What happened' }).locator('li').first();
    await becomes(async () => /Ended/.test((await first.textContent()) ?? ''), true);
  });

  it('says so if there is no such session', async (t) => {
    const page = await open(t, '#/sessions/sess_nobody', { tolerate: /404/ });
    await page.getByRole('heading', { level: 1, name: 'Unknown session' }).waitFor();
    await page.getByText('sess_nobody', { exact: true }).waitFor();
    for (const part of ['Record', 'Timeline', 'Messages and events', 'State']) {
      assert.equal(await page.getByRole('heading', { name: part, exact: true }).count(), 0, part);
    }
    await page.getByRole('link', { name: '← All sessions' }).click();
    await page.getByRole('searchbox', { name: 'Search sessions' }).waitFor();
  });

  it('takes an address that is none for that of a session nobody has', async (t) => {
    const page = await open(t, '#/sessions/%', { tolerate: /40[04]/ });
    await page.getByRole('heading', { level: 1, name: 'Unknown session' }).waitFor();
    await page.getByText('%', { exact: true }).waitFor();
  });

  it('plots what happens', async (t) => {
    const client = await attach(t, browser, server);
    const page = await open(t);
    await page.getByRole('img', { name: /^Sessions: .*attached [1-9]/ }).waitFor();
    const plot = (/** @type {RegExp} */ name) => page.getByRole('img', { name }).waitFor();
    await backend.call('POST', `/api/sessions/${client.id}/disconnect`);
    await plot(/^Reconnects: back [1-9]/);
    await plot(/^Time to reconnect: median .*s/);
    await plot(/^Commit time: median .*s/);
    await plot(/^Events: replayed/);
    await page.getByRole('button', { name: '1 h' }).click();
    await page.getByRole('link', { name: /attached/ }).click();
    await becomes(async () => new Set(await column(page, 'Sessions', 'state')), new Set(['attached']));
  });

  it('says what to do while there are no sessions', async (t) => {
    const own = await Server.start([]);
    afterwards(t, () => own.end());
    const page = await openTab(t, browser);
    await page.goto(own.http);
    const hint = page.getByRole('region', { name: 'No sessions yet' });
    await hint.getByText("rejoin --agent 'python3 my_agent.py'").waitFor();
    await hint.getByText('rejoin --mcp').waitFor();
    assert.equal(await hint.getByRole('link', { name: 'open the playground' }).getAttribute('href'), '/play');
    await new Backend(own).make();
    await hint.waitFor({ state: 'hidden' });
  });

  it('says that the server does not answer, and goes on when it does', async (t) => {
    const own = await Server.start([]);
    afterwards(t, () => own.end());
    const page = await openTab(t, browser, { network: true });
    await page.goto(`${own.http}/#/sessions`);
    await page.getByText('No sessions yet.').waitFor();
    await own.kill();
    await page.getByText('The server does not answer. Trying again …').waitFor();
    await own.restart();
    const id = await new Backend(own).make();
    await becomes(() => column(page, 'Sessions', 'id'), [id]);
    await page.getByText('The server does not answer.').waitFor({ state: 'hidden' });
  });
});
