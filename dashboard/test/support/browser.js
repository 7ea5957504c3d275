// Debian's Chromium, and pages in it that are watched: a test whose page complained on its console, threw,
// or broke its Content-Security-Policy has failed.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { chromium } from 'playwright-core';

import { afterwards } from './afterwards.js';

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** `CHROMIUM`, or where Debian puts it. */
const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** What a browser says of itself when the network, or the server, is gone; fine where a test broke it. */
const NETWORK = /WebSocket connection to .* failed|net::ERR_|Failed to load resource: net::/;

/** A browser for the tests of one file; `close` it after them. */
export function launch() {
  assert.ok(existsSync(executablePath), `there is no ${executablePath}: apt-get install chromium, or set CHROMIUM`);
  return chromium.launch({ executablePath, headless: true, args: FLAGS });
}

/** What a person has who closes the browser and opens it again: a profile that outlives it. */
export class Profile {
  #directory = mkdtempSync(join(tmpdir(), 'rejoin-profile-'));
  /** @type {import('playwright-core').BrowserContext|null} */
  #context = null;

  /** @param {import('node:test').TestContext} t */
  constructor(t) {
    afterwards(t, async () => {
      await this.closeBrowser();
      rmSync(this.#directory, { recursive: true, force: true, maxRetries: 10 });
    });
  }

  async openBrowser() {
    const options = { executablePath, headless: true, args: FLAGS };
    this.#context = await chromium.launchPersistentContext(this.#directory, options);
    return this.#context;
  }

  async closeBrowser() {
    await this.#context?.close();
    this.#context = null;
  }
}

/**
 * A tab that is watched. At the end of the test it must have had nothing to complain about.
 *
 * @param {import('node:test').TestContext} t
 * @param {import('playwright-core').Browser|import('playwright-core').BrowserContext} where a browser (the tab
 *   gets a profile of its own) or a context (it shares that of others)
 * @param {{ network?: boolean, tolerate?: RegExp, context?: import('playwright-core').BrowserContextOptions }} [options]
 *   `network`: this test breaks the network; `tolerate`: what else may be said
 */
export async function openTab(t, where, { network = false, tolerate, context = {} } = {}) {
  const own = 'newContext' in where ? await where.newContext(context) : null;
  const page = await (own ?? /** @type {import('playwright-core').BrowserContext} */ (where)).newPage();
  const complaints = watch(page);
  afterwards(t, async () => {
    const said = [...complaints]; // what a page says while it is closed does not count
    await own?.close();
    const left = said.filter((text) => !(network && NETWORK.test(text)) && !tolerate?.test(text));
    assert.deepEqual(left, [], 'what the page complained about');
  });
  return page;
}

/** @param {import('playwright-core').Page} page @returns {string[]} what it complains about, as it comes */
export function watch(page) {
  /** @type {string[]} */
  const complaints = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(`${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => complaints.push(`thrown: ${error.stack ?? error}`));
  return complaints;
}
