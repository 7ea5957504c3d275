// The examples do what they say, with a server that is killed in mid-answer.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { afterwards } from './support/afterwards.js';
import { launch, openTab } from './support/browser.js';
import { serve } from './support/files.js';
import { answerTo } from './support/playground.js';
import { Server } from './support/server.js';
import { talker } from './support/talker.js';

const repository = fileURLToPath(new URL('../../', import.meta.url));
const run = promisify(execFile);

describe('the examples', { timeout: 240_000, concurrency: 3 }, () => {
  /** @type {import('playwright-core').Browser} */
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser.close());

  /** @param {import('node:test').TestContext} t @param {Promise<any>} starting */
  const forThis = async (t, starting) => {
    const thing = await starting;
    afterwards(t, () => thing.end());
    return thing;
  };

  /** A page that asks, whose server dies while it answers, and that is reloaded afterwards.
   *  @param {import('node:test').TestContext} t @param {string} url @param {Server} server @param {string} answer */
  const survives = async (t, url, server, answer) => {
    const page = await openTab(t, browser, { network: true });
    await page.goto(`${url}?server=${encodeURIComponent(server.url)}`);
    await page.getByText('Status: connected').waitFor();
    await page.getByLabel('Question').fill('Does this work?');
    await page.getByRole('button', { name: 'Ask' }).click();
    const text = page.locator(answer);
    await text.filter({ hasText: 'Does this work?' }).waitFor();
    await server.killAndRestart();
    await text.filter({ hasText: 'nothing of this is lost.' }).waitFor();
    assert.deepEqual(await text.allTextContents(), [answerTo('Does this work?', 0)]);
    await page.reload();
    await text.filter({ hasText: 'nothing of this is lost.' }).waitFor();
    assert.deepEqual(await text.allTextContents(), [answerTo('Does this work?', 0)]);
  };

  it('html', async (t) => {
    const server = await forThis(t, Server.start([]));
    const files = await forThis(t, serve(repository));
    await survives(t, `${files.url}/examples/html/`, server, '#answers p');
  });

  for (const tokens of [2_100, 20_000]) {
    it(`html, reloaded after an answer of ${tokens} tokens, with the question`, async (t) => {
      const server = await forThis(t, Server.start(['--agent', talker(t)]));
      const files = await forThis(t, serve(repository));
      const page = await openTab(t, browser, { network: true });
      await page.goto(`${files.url}/examples/html/?server=${encodeURIComponent(server.url)}`);
      await page.getByText('Status: connected').waitFor();
      await page.getByLabel('Question').fill(String(tokens));
      await page.getByRole('button', { name: 'Ask' }).click();
      const whole = Array.from({ length: tokens }, (_, index) => `t${index + 1} `).join('');
      for (let load = 0; load < 2; load += 1) {
        await page.locator('#answers p').filter({ hasText: `t${tokens} ` }).waitFor({ timeout: 60_000 });
        assert.equal(await page.locator('#answers p').textContent(), whole);
        await page.locator('#answers strong').filter({ hasText: String(tokens) }).waitFor();
        await page.reload();
      }
    });
  }

  it('html, closed while an answer of 20,000 tokens is told, shows all of it when it is opened again, and reloaded', async (t) => {
    const server = await forThis(t, Server.start(['--agent', talker(t)]));
    const files = await forThis(t, serve(repository));
    const url = `${files.url}/examples/html/?server=${encodeURIComponent(server.url)}`;
    const page = await openTab(t, browser, { network: true });
    await page.goto(url);
    await page.getByText('Status: connected').waitFor();
    const session = await page.evaluate(() => JSON.parse(localStorage['rejoin-html-example']).session_id);
    await page.goto('about:blank'); // the page is gone before anything is said
    const api = `${server.url.replace('ws', 'http').replace(/\/ws$/, '')}/api/sessions/${session}`;
    const body = JSON.stringify({ content: '20000', message_id: 'm1' });
    const sent = await fetch(`${api}/messages`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    assert.equal(sent.status, 200);
    for (let newest = 0; newest < 20_000; await new Promise((resolve) => setTimeout(resolve, 200))) {
      newest = (await (await fetch(`${api}/health`)).json()).newest_event_seq ?? 0;
    }
    const whole = Array.from({ length: 20_000 }, (_, index) => `t${index + 1} `).join('');
    await page.goto(url);
    for (let load = 0; load < 2; load += 1) {
      await page.locator('#answers p').filter({ hasText: 't20000 ' }).waitFor({ timeout: 60_000 });
      assert.equal(await page.locator('#answers p').textContent(), whole);
      await page.locator('#answers strong').filter({ hasText: '20000' }).waitFor();
      await page.reload();
    }
  });

  it('react', async (t) => {
    const directory = join(repository, 'examples/react');
    await run('npm', ['run', '--silent', 'build'], { cwd: directory });
    const server = await forThis(t, Server.start([]));
    const files = await forThis(t, serve(join(directory, 'public')));
    await survives(t, `${files.url}/`, server, '.answer');
  });

  it('node: its server is killed, and then the program itself', async (t) => {
    const server = await forThis(t, Server.start([]));
    const directory = mkdtempSync(join(tmpdir(), 'rejoin-example-'));
    afterwards(t, () => rmSync(directory, { recursive: true, force: true }));
    const env = { ...process.env, REJOIN_URL: server.url, REJOIN_FILE: join(directory, 'session.json') };
    const script = join(repository, 'examples/node/chat.mjs');
    /** Runs it until it has printed that; what it printed. @param {string[]} question @param {RegExp} until */
    const chat = async (question, until) => {
      const child = spawn(process.execPath, [script, ...question], { env, stdio: ['ignore', 'pipe', 'ignore'] });
      let printed = '';
      for await (const piece of child.stdout.setEncoding('utf8')) {
        printed += piece;
        if (until.test(printed)) break;
      }
      child.kill('SIGKILL');
      return printed;
    };
    const killed = chat(['Does this work?'], /Before this message/);
    await new Promise((resolve) => setTimeout(resolve, 2_000)); // somewhere in its work
    await server.killAndRestart();
    const [first, second] = [await killed, await chat([], /\n$/)];
    const whole = `${answerTo('Does this work?', 0)}\n`;
    // Who is killed gets again what it had not said to have handled; nothing is missing and nothing else comes twice.
    assert.ok(whole.startsWith(first), first);
    assert.ok(whole.endsWith(second), second);
    assert.ok(first.length + second.length >= whole.length, `${first} | ${second}`);
  });

  it('node: a question after an answer that was cut short gets its own answer', async (t) => {
    const server = await forThis(t, Server.start([]));
    const directory = mkdtempSync(join(tmpdir(), 'rejoin-example-'));
    afterwards(t, () => rmSync(directory, { recursive: true, force: true }));
    const env = { ...process.env, REJOIN_URL: server.url, REJOIN_FILE: join(directory, 'session.json') };
    /** @param {string} question @param {RegExp} [until] when it is killed; what it printed */
    const chat = async (question, until) => {
      const script = join(repository, 'examples/node/chat.mjs');
      const child = spawn(process.execPath, [script, question], { env, stdio: ['ignore', 'pipe', 'ignore'] });
      let printed = '';
      for await (const piece of child.stdout.setEncoding('utf8')) {
        printed += piece;
        if (until?.test(printed)) child.kill('SIGKILL');
      }
      return printed;
    };
    await chat('Does this work?', /You wrote/);
    const second = await chat('And this?');
    assert.ok(second.endsWith(`\n${answerTo('And this?', 1)}\n`), second);
  });

  it('an answer that comes without pieces is shown once', async (t) => {
    const server = await forThis(t, Server.start(['--agent', talker(t)]));
    const files = await forThis(t, serve(repository));
    const page = await openTab(t, browser, { network: true });
    await page.goto(`${files.url}/examples/html/?server=${encodeURIComponent(server.url)}`);
    await page.getByText('Status: connected').waitFor();
    await page.getByLabel('Question').fill('say it whole');
    await page.getByRole('button', { name: 'Ask' }).click();
    await page.locator('#answers p').filter({ hasText: 'the whole answer' }).waitFor();
    assert.deepEqual(await page.locator('#answers p').allTextContents(), ['the whole answer']);
  });
});
