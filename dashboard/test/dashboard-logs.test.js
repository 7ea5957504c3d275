// A session's two logs as one, what its agent left behind, and what its agent died of.

import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import { answered, woven } from '../home/logs.js';
import { isAccessible } from './support/axe.js';
import { launch, openTab } from './support/browser.js';
import { LAST_WORDS, mortal } from './support/mortal.js';
import { Backend, becomes, column } from './support/people.js';
import { Server } from './support/server.js';

describe('two logs as one', () => {
  const event = (/** @type {number} */ seq, /** @type {number} */ inSeq = 0) => {
    const metadata = inSeq ? `,"metadata":{"n":1,"in_seq":${inSeq}}` : '';
    return { kind: 'event', position: `e:${seq}`, seq, data: `{"event":"a","content":"x"${metadata}}` };
  };
  const message = (/** @type {number} */ in_seq) =>
    /** @type {import('../home/api.js').Message} */ ({ in_seq, event: 'user.message', content: '' });
  /** @param {ReturnType<typeof event>[]} events @param {number[]} messages */
  const order = (events, messages) =>
    woven(events, messages.map(message)).map(({ sent, message }) => (sent ? sent.seq : `in ${message?.in_seq}`));

  it('has each message before the first event that answers it', () => {
    const events = [event(1, 1), event(2, 1), event(3, 2), event(4, 3)];
    assert.deepEqual(order(events, [1, 2, 3]), ['in 1', 1, 2, 'in 2', 3, 'in 3', 4]);
  });

  it('has messages that nothing answers yet last, and those that nothing answered before the next that is', () => {
    assert.deepEqual(order([event(1), event(2, 3)], [1, 2, 3, 4]), [1, 'in 1', 'in 2', 'in 3', 2, 'in 4']);
    assert.deepEqual(order([], [7]), ['in 7']);
    assert.deepEqual(order([event(8, 5)], []), [8]);
  });

  it('reads which message is answered from the metadata alone', () => {
    const of = (/** @type {unknown} */ envelope, kind = 'event') =>
      answered({ kind, position: '', seq: 1, data: JSON.stringify(envelope) });
    assert.equal(of({ event: 'a', content: { in_seq: 4, metadata: { in_seq: 5 } }, metadata: { in_seq: 12 } }), 12);
    assert.equal(of({ event: 'a', content: '"metadata":{"in_seq":5}' }), 0);
    assert.equal(of({ event: 'a', content: '"metadata":{"in_seq":5}', metadata: { in_seq: 6 } }), 6);
    assert.equal(of({ event: 'a', metadata: { step: { in_seq: 99 } } }), 0);
    assert.equal(of({ event: 'a', metadata: { step: { in_seq: 99 }, in_seq: 7 } }), 7);
    assert.equal(of({ event: 'a', metadata: { steps: [{ in_seq: 99 }], in_seq: 7 } }), 7);
    assert.equal(of({ event: 'a', metadata: { in_seq: 7, metadata: { in_seq: 99 } } }), 7);
    assert.equal(of({ event: 'a', content: { metadata: { in_seq: 99 } } }), 0);
    assert.equal(of({ event: 'a', metadata: { note: '{"in_seq":99', in_seq: 7 } }), 7);
    assert.equal(of({ event: 'a', metadata: { in_seq: 'none' } }), 0);
    assert.equal(of({ from: 1, to: 2 }, 'gap'), 0);
  });
});

describe('the page of a session with an agent', { timeout: 120_000 }, () => {
  /** @type {Server} */
  let server;
  /** @type {Backend} */
  let backend;
  /** @type {import('playwright-core').Browser} */
  let browser;
  /** @type {(() => unknown)[]} */
  const ends = [];
  before(async () => {
    server = await Server.start(['--agent', mortal({ after: (end) => ends.push(end) })]);
    backend = new Backend(server);
    browser = await launch();
  });
  after(async () => {
    await browser.close();
    await server.end();
    for (const end of ends) await end();
  });

  /** @param {string} id @param {string} content */
  const ask = (id, content) => backend.call('POST', `/api/sessions/${id}/messages`, { content });

  /** @param {string} id @param {number} count */
  const answers = (id, count) =>
    becomes(async () => (await backend.call('GET', `/api/sessions/${id}`)).last_seq, 2 * count);

  it('shows questions with their answers, as they come', async (t) => {
    const id = await backend.make();
    await ask(id, 'one');
    await answers(id, 1);
    const page = await openTab(t, browser);
    await page.goto(`${server.http}/#/sessions/${id}`);
    await becomes(() => column(page, 'Messages and events', 'seq'), ['in 1', '1', '2']);
    await ask(id, '<img src=x onerror=alert(1)>');
    await becomes(() => column(page, 'Messages and events', 'seq'), ['in 1', '1', '2', 'in 2', '3', '4']);
    await becomes(() => column(page, 'Messages and events', 'answers'), ['', 'in 1', 'in 1', '', 'in 2', 'in 2']);
    assert.equal((await column(page, 'Messages and events', 'content'))[3], '<img src=x onerror=alert(1)>');
    await page.getByText('2 messages, 4 events').waitFor();
    await page.getByRole('button', { name: 'in 2', exact: true }).click();
    const whole = JSON.parse((await page.getByRole('group', { name: 'The entry, whole' }).textContent()) ?? '');
    assert.deepEqual([whole.event, whole.in_seq], ['user.message', 2]);
    assert.equal(await page.locator('main img').count(), 0);
  });

  it('shows what the agent died of, also after a restart of the server', async (t) => {
    const id = await backend.make();
    await ask(id, 'die');
    await answers(id, 1);
    const page = await openTab(t, browser, { network: true });
    await page.goto(`${server.http}/#/sessions/${id}`);
    const death = page.getByRole('group', { name: 'What happened' }).locator('li.died');
    const told = async () => {
      await page.getByText('Agent died').waitFor();
      assert.match((await death.textContent()) ?? '', /exit status: 3/);
      assert.equal(await death.locator('pre').textContent(), LAST_WORDS.join('\n'));
      assert.equal(await page.locator('main script').count(), 0);
    };
    await told();
    await isAccessible(page);
    await server.killAndRestart();
    await page.reload();
    await told();
    assert.match(server.log(), /WARN.*agent died.*status="exit status: 3".*told to die/);
  });

  it('shows the state in clear when one asks for it', async (t) => {
    const id = await backend.make();
    const page = await openTab(t, browser);
    await page.goto(`${server.http}/#/sessions/${id}`);
    const state = page.getByRole('region', { name: 'State' });
    await state.getByText('What the agent has stored').click();
    await state.getByText('The agent has stored none yet.').waitFor();
    assert.equal(await state.getByRole('group', { name: 'The state' }).count(), 0, 'and none is shown');
    await ask(id, 'question');
    await answers(id, 1);
    await state.getByRole('button', { name: 'Read it again' }).click();
    await state.getByText(/^As of event 2, stored /).waitFor();
    const shown = JSON.parse((await state.getByRole('group', { name: 'The state' }).textContent()) ?? '');
    assert.deepEqual([shown.answered, shown.last], [1, 'question']);
    await isAccessible(page);
  });

  it('shows a state that was stored before any event', async (t) => {
    const id = await backend.make();
    await ask(id, 'say nothing');
    const page = await openTab(t, browser);
    await page.goto(`${server.http}/#/sessions/${id}`);
    const state = page.getByRole('region', { name: 'State' });
    await state.getByText('What the agent has stored').click();
    const shown = state.getByRole('group', { name: 'The state' });
    await becomes(async () => {
      await state.getByRole('button', { name: 'Read it again' }).click();
      return (await shown.count()) > 0 && JSON.parse((await shown.textContent()) ?? '').quiet;
    }, true);
    await state.getByText('Stored before the first event.').waitFor();
  });
});
