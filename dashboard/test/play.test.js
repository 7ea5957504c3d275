// The playground under everything that can happen to it. Each time the text on the page is complete in the end,
// to the letter, and no event is missing or came through twice.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';

import { afterwards } from './support/afterwards.js';
import { launch, Profile } from './support/browser.js';
import { answerTo, Playground } from './support/playground.js';
import { Proxy, Server } from './support/server.js';
import { talker } from './support/talker.js';

const network = { network: true };

describe('the playground', { timeout: 300_000, concurrency: 5 }, () => {
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

  it('an answer that nothing happens to is complete', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.says('Connected');
    await play.ask('How are you?');
    await play.isComplete();
    assert.equal(await play.count('replayed'), 0);
    await play.ask('And now?');
    await play.isComplete();
  });

  it('the switch cuts the connection in mid-answer, and the answer goes on where it stopped', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.ask('What becomes of this?');
    await play.isWriting();
    await play.cutSwitch().click();
    await play.says(/^Reconnecting: attempt \d+, next try in /);
    const cutAt = await play.page.locator('.answer').textContent();
    await play.keepsTrying(); // it stays cut
    assert.equal(await play.page.locator('.answer').textContent(), cutAt);
    await play.cutSwitch().click();
    await play.says('Connected again: the session goes on');
    await play.isComplete();
    await play.hasSaid(/^Connection lost$/);
    assert.ok((await play.count('replayed')) > 0);
    assert.ok((await play.count('received')) > 0);
  });

  it('a question asked while it is cut is answered afterwards', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.says('Connected');
    await play.cutSwitch().click();
    await play.ask('Can you hear me?');
    await play.page.getByText('on its way').waitFor();
    await play.cutSwitch().click();
    await play.isComplete();
  });

  it('the agent is killed in mid-answer, several times, and its successors finish the answer', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.ask('Who are you?');
    for (const pieces of [1, 4, 8]) {
      await play.isWriting(pieces);
      await play.page.getByRole('button', { name: 'Restart the agent' }).click();
    }
    await play.isComplete();
    assert.equal(await play.page.getByText('The agent was killed; another one goes on').count(), 3);
  });

  it('everything is sent again, and each event is dropped as a duplicate', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.ask('Say it again?');
    await play.isComplete();
    const events = await play.count('received');
    await play.page.getByRole('button', { name: 'Send it all again' }).click();
    await play.page.locator('#dropped').filter({ hasText: String(events) }).waitFor();
    await play.isComplete();
  });

  it('it is asked to send everything again while there is no open connection, which does nothing', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.ask('Too early?');
    await play.isWriting();
    await play.page.evaluate(() => {
      for (const id of ['cut', 'again', 'cut', 'again']) document.getElementById(id)?.click();
    });
    await play.isComplete();
  });

  it('it sleeps for 90 seconds and is awake again at once', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.page.clock.install();
    await play.page.reload();
    await play.ask('Did you sleep well?');
    await play.isWriting();
    await play.page.getByRole('button', { name: 'Sleep 90 seconds' }).click();
    await play.page.getByRole('dialog', { name: 'Asleep' }).waitFor();
    await play.page.clock.fastForward(91_000);
    await play.page.getByRole('dialog').waitFor({ state: 'hidden' });
    await play.isComplete();
    await play.hasSaid(/^Connected again: the session goes on$/);
  });

  it('it is woken early, and goes on too', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.ask('Up already?');
    await play.isWriting();
    await play.page.getByRole('button', { name: 'Sleep 90 seconds' }).click();
    await play.page.getByRole('button', { name: 'Wake up now' }).click();
    await play.isComplete();
  });

  it('what was cut before it slept is still cut when it wakes', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.ask('Still cut?');
    await play.isWriting();
    await play.cutSwitch().click();
    await play.page.getByRole('button', { name: 'Sleep 90 seconds' }).click();
    await play.page.getByRole('button', { name: 'Wake up now' }).click();
    await play.keepsTrying();
    assert.equal(await play.cutSwitch().getAttribute('aria-checked'), 'true');
    await play.cutSwitch().click();
    await play.isComplete();
  });

  it('a session that is ended is over, and a new one begins when wanted', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.ask('Is this the end?');
    await play.isComplete();
    await play.page.getByRole('button', { name: 'End it', exact: true }).click();
    await play.says('Stopped: This session was ended');
    await play.page.getByRole('button', { name: 'Begin a new session' }).click();
    await play.says(/^Connected$/);
    assert.equal(await play.page.locator('.turn').count(), 0);
  });

  it('the browser is offline and online again', async (t) => {
    const context = await browser.newContext();
    afterwards(t, () => context.close());
    const play = await Playground.open(t, context, server.http, network);
    await play.ask('Are you there?');
    await play.isWriting();
    await context.setOffline(true);
    await play.says(/^(Connection lost|Reconnecting)/);
    await play.page.getByRole('button', { name: 'Restart the agent' }).click();
    await play.page.getByText('The server does not answer, so the agent was not restarted').waitFor();
    await context.setOffline(false);
    await play.isComplete();
  });

  it('the page is reloaded in mid-answer', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.ask('Once more?');
    await play.isWriting();
    await play.page.reload();
    await play.isComplete();
    await play.ask('And after that?');
    await play.page.reload(); // before the server may have accepted it
    await play.isComplete();
  });

  it('what was asked while it was cut outlives a reload, and stands after what was asked before', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    await play.ask('Who is first?');
    await play.isWriting();
    await play.cutSwitch().click();
    await play.ask('Who is second?');
    await play.page.reload();
    await play.isComplete();
  });

  it('a network that resets every connection does no more than delay the answer', async (t) => {
    const proxy = await Proxy.start(server.port);
    afterwards(t, () => proxy.end());
    const play = await Playground.open(t, browser, proxy.url.replace(/^ws(.*)\/ws$/, 'http$1'), network);
    await play.says('Connected');
    proxy.weather = { resetAfter: () => 300 + Math.random() * 1_500 };
    proxy.reset();
    const connections = proxy.connections;
    await play.ask('Is the line bad?');
    await play.isWriting(8);
    proxy.weather = {};
    await play.isComplete();
    assert.ok(proxy.connections - connections >= 3, `${proxy.connections - connections} connections`);
  });

  it('of two tabs one has the session; the other takes it over in mid-answer, and gives it back', async (t) => {
    const context = await browser.newContext();
    afterwards(t, () => context.close());
    const first = await Playground.open(t, context, server.http);
    await first.says('Connected');
    const second = await Playground.open(t, context, server.http);
    await second.says('Stopped: Another tab has this session');
    await second.page.getByRole('button', { name: 'Restart the agent' }).click();
    await second.page.getByText('This tab has no session').waitFor();
    await first.ask('Whose turn is it?');
    await first.isWriting();
    await second.knows('Whose turn is it?').ask('Mine?'); // sent once this tab has the session
    await second.page.getByRole('button', { name: 'Have it here' }).click();
    await first.says('Stopped: Another tab has this session');
    await second.isComplete();
    await second.page.close();
    await first.knows('Mine?').isComplete();
  });

  it('the keyboard alone is enough', async (t) => {
    const play = await Playground.open(t, browser, server.http);
    const { page } = play;
    await play.says('Connected');
    const tabTo = async (name) => {
      for (let presses = 0; presses < 30; presses += 1) {
        await page.keyboard.press('Tab');
        const focused = await page.evaluate(() => document.activeElement?.id);
        if (focused === name) return;
      }
      assert.fail(`Tab does not lead to ${name}`);
    };
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter'); // the link that skips
    await page.keyboard.press('ControlOrMeta+A');
    await page.keyboard.type('Without a mouse?');
    play.knows('Without a mouse?');
    await page.keyboard.press('Enter');
    await play.isWriting();
    await tabTo('cut');
    await page.keyboard.press('Space');
    await play.says(/^Reconnecting/);
    await page.keyboard.press('Space');
    await play.isComplete();
  });
});

describe('the playground and its server', { timeout: 300_000, concurrency: 5 }, () => {
  /** @type {import('playwright-core').Browser} */
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser.close());

  /** @param {import('node:test').TestContext} t @param {string[]} [flags] */
  const start = async (t, flags = []) => {
    const server = await Server.start(flags);
    afterwards(t, () => server.end());
    return server;
  };

  it('the server is killed in mid-answer, twice, and started again', async (t) => {
    const server = await start(t);
    const play = await Playground.open(t, browser, server.http, network);
    await play.ask('Are you immortal?');
    await play.isWriting();
    await server.killAndRestart();
    await play.isWriting(6);
    await server.kill();
    await play.says(/^Reconnecting/);
    await server.restart();
    await play.isComplete();
    await play.ask('Still there?');
    await play.isComplete();
  });

  it('the agent of the documentation answers, and the page has nothing to say against it', async (t) => {
    const protocol = readFileSync(new URL('../../docs/protocol.md', import.meta.url), 'utf8');
    const script = protocol.match(/```python save=answer\.py\n(.*?)```/s)?.[1] ?? assert.fail('no agent');
    const directory = mkdtempSync(join(tmpdir(), 'rejoin-docs-agent-'));
    t.after(() => rmSync(directory, { recursive: true, force: true }));
    writeFileSync(join(directory, 'agent.py'), script);
    const server = await start(t, ['--agent', `python3 ${join(directory, 'agent.py')}`]);
    const play = await Playground.open(t, browser, server.http, network);
    await play.says('Connected');
    for (const question of ['Does this work?', 'And again?']) {
      await play.ask(question);
      await play.page.locator('.turn.complete').filter({ hasText: `You said: ${question}` }).waitFor();
    }
    await play.page.evaluate(() => localStorage.removeItem('rejoin-play-sent'));
    await play.page.reload();
    await play.page.locator('.turn.complete >> nth=1').waitFor();
    await play.page.locator('.turn >> nth=1').locator('.question p').filter({ hasText: 'And again?' }).waitFor();
    assert.deepEqual(await play.page.locator('.question p').allTextContents(), ['Does this work?', 'And again?']);
    assert.deepEqual(
      await play.page.locator('.answer').allTextContents(),
      ['You said: Does this work?', 'You said: And again?'],
    );
    assert.doesNotMatch(await play.page.locator('#log').innerText(), /not what the agent said/);
  });

  for (const tokens of [2_100, 20_000]) {
    it(`a reload shows an answer of ${tokens} tokens and its question`, async (t) => {
      const server = await start(t, ['--agent', talker(t)]);
      const play = await Playground.open(t, browser, server.http, network);
      await play.says('Connected');
      await play.ask(String(tokens));
      const whole = Array.from({ length: tokens }, (_, index) => `t${index + 1} `).join('');
      for (let load = 0; load < 2; load += 1) {
        await play.page.locator('.turn.complete').waitFor({ timeout: 60_000 });
        assert.equal(await play.page.locator('.answer').textContent(), whole);
        await play.page.locator('.question p').filter({ hasText: String(tokens) }).waitFor();
        await play.page.evaluate(() => localStorage.removeItem('rejoin-play-sent'));
        await play.page.reload();
      }
    });
  }

  it('the browser is closed in mid-answer and opened again later', async (t) => {
    const server = await start(t);
    const profile = new Profile(t);
    const before = await Playground.open(t, await profile.openBrowser(), server.http);
    await before.ask('Until tomorrow?');
    await before.isWriting();
    await profile.closeBrowser();

    const later = await Playground.open(t, await profile.openBrowser(), server.http);
    await later.knows('Until tomorrow?').isComplete();
    await later.hasSaid(/^Connected again: the session goes on$/);
    await later.ask('Good morning?');
    await later.isComplete();
  });

  /** @param {import('playwright-core').Page} page @param {string} key */
  async function give(page, key) {
    await page.getByLabel('This server asks who you are').fill(key);
    await page.getByRole('button', { name: 'Use it' }).click();
  }

  it('a server that asks for a key gets one, which is kept for this tab only', async (t) => {
    const key = 'playground-key';
    const server = await start(t, ['--config', keysFile(t, key)]);
    const context = await browser.newContext();
    afterwards(t, () => context.close());
    const play = await Playground.open(t, context, server.http, network);
    await play.says('Stopped: The server refused (UNAUTHORIZED)');
    await give(play.page, 'another-key');
    await play.says('Stopped: The server does not take this key (4102)');
    assert.ok(await play.page.getByRole('button', { name: 'Go on here' }).isHidden());
    await give(play.page, key);
    await play.says('Connected');
    await play.ask('Do you know me?');
    await play.isWriting();
    await play.page.getByRole('button', { name: 'Restart the agent' }).click();
    await play.isComplete();
    assert.equal(await play.page.getByText('The agent was killed; another one goes on').count(), 1);
    assert.equal(await play.page.evaluate(() => localStorage.getItem('rejoin-key')), null);
    await play.page.close();
    const other = await Playground.open(t, context, server.http, network);
    await other.says('Stopped: The server refused (UNAUTHORIZED)');
  });

  const brief = ['--session-ttl', '3s', '--auto-export-interval', '1s'];

  it('the session expires while it is cut, and goes on from the saved state', async (t) => {
    const server = await start(t, brief);
    const play = await Playground.open(t, browser, server.http);
    await play.ask('How long will you wait?');
    await play.isComplete();
    await play.cutSwitch().click();
    await hasExpired(server, await play.page.locator('#session-id').textContent());
    await play.cutSwitch().click();
    await play.says('Connected again, from the saved state');
    await play.hasSaid(/^The session is gone; restoring it from the saved state/);
    await play.ask('Do you remember?');
    await play.textIsComplete();
  });

  it('the session expires in mid-answer: what is gone is told, and the agent says it again', async (t) => {
    const server = await start(t, brief);
    const play = await Playground.open(t, browser, server.http);
    await play.ask('What if it is gone?');
    await play.isWriting(5);
    await play.cutSwitch().click();
    await hasExpired(server, await play.page.locator('#session-id').textContent());
    await play.cutSwitch().click();
    await play.says('Connected again, from the saved state');
    await play.textIsComplete();
    const told = await play.page.getByText(/^Events \d+ to \d+ are gone from the server$/).textContent();
    const [from, to] = told.match(/\d+/g).map(Number);
    assert.equal(await play.count('missing'), to - from + 1);
  });

  it('the browser is opened again when the session is gone, and goes on from the saved state', async (t) => {
    const server = await start(t, brief);
    const profile = new Profile(t);
    const before = await Playground.open(t, await profile.openBrowser(), server.http);
    await before.ask('See you?');
    await before.isComplete();
    const id = await before.page.locator('#session-id').textContent();
    await profile.closeBrowser();
    await hasExpired(server, id);

    const later = await Playground.open(t, await profile.openBrowser(), server.http);
    await later.says('Connected again, from the saved state');
    await later.ask('Do you remember?');
    const turn = later.page.locator('.turn.complete').filter({ hasText: 'Do you remember?' });
    await turn.waitFor({ timeout: 30_000 });
    assert.equal(await turn.locator('.answer').textContent(), answerTo('Do you remember?', 1));
    assert.match(await later.page.locator('.happened').first().textContent(), /gone from the server/);
  });
});

/** Waits until the server says so. @param {Server} server @param {string|null} id */
async function hasExpired(server, id) {
  for (let looks = 0; looks < 300; looks += 1) {
    const record = await (await fetch(`${server.http}/api/sessions/${id}`)).json();
    if (record.status === 'expired') return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail('the session does not expire');
}

/** A settings file with one key. @param {import('node:test').TestContext} t @param {string} key */
function keysFile(t, key) {
  const directory = mkdtempSync(join(tmpdir(), 'rejoin-keys-'));
  afterwards(t, () => rmSync(directory, { recursive: true, force: true }));
  const hash = createHash('sha256').update(key).digest('hex');
  const file = join(directory, 'rejoin.toml');
  writeFileSync(file, `[[api_keys]]\nname = "ann"\nprincipal = "ann"\nkey_sha256 = "${hash}"\n`);
  return file;
}
