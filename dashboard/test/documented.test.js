// The pages of code that clients/js/README.md shows work as they stand: plain HTML, and React.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { afterwards } from './support/afterwards.js';
import { launch, openTab } from './support/browser.js';
import { serve } from './support/files.js';
import { Server } from './support/server.js';

const repository = fileURLToPath(new URL('../../', import.meta.url));
const readme = readFileSync(join(repository, 'clients/js/README.md'), 'utf8');
const run = promisify(execFile);

/** The block of that language. @param {string} language */
const block = (language) => {
  const found = readme.match(new RegExp(`^\`\`\`${language} [^\\n]*\\n(.*?)^\`\`\``, 'ms'));
  assert.ok(found, `no ${language} block in the README`);
  return found[1];
};

describe('the README of the client', { timeout: 120_000 }, () => {
  /** @type {import('playwright-core').Browser} */
  let browser;
  before(async () => (browser = await launch()));
  after(() => browser.close());

  /** A folder with these files, served; a server for `/ws`. @param {import('node:test').TestContext} t @param {Record<string, string>} files */
  const site = async (t, files) => {
    const directory = mkdtempSync(join(tmpdir(), 'rejoin-readme-'));
    afterwards(t, () => rmSync(directory, { recursive: true, force: true }));
    const server = await Server.start([]);
    afterwards(t, () => server.end());
    for (const [name, text] of Object.entries(files)) {
      writeFileSync(join(directory, name), text.replaceAll("'/ws'", `'${server.url}'`));
    }
    const served = await serve(directory);
    afterwards(t, () => served.end());
    return { directory, url: served.url };
  };

  it('html', async (t) => {
    const { directory, url } = await site(t, { 'index.html': block('html') });
    cpSync(join(repository, 'clients/js/src'), join(directory, 'rejoin-client/src'), { recursive: true });
    const page = await openTab(t, browser, { network: true });
    await page.goto(`${url}/index.html`);
    await page.locator('#status').filter({ hasText: 'connected' }).waitFor();
  });

  it('react', async (t) => {
    const start = "import { createRoot } from 'react-dom/client';\ncreateRoot(document.body).render(<Chat />);\n";
    const { directory, url } = await site(t, {
      'app.jsx': block('jsx') + start,
      'index.html': '<!doctype html><body><script type="module" src="app.js"></script></body>',
    });
    const react = join(repository, 'examples/react');
    const options = ['app.jsx', '--bundle', '--jsx=automatic', '--format=esm', '--outfile=app.js'];
    const env = { ...process.env, NODE_PATH: join(react, 'node_modules') };
    await run(join(react, 'node_modules/.bin/esbuild'), options, { cwd: directory, env });
    const page = await openTab(t, browser, { network: true });
    await page.goto(`${url}/index.html`);
    await page.getByText('connected', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Say hello' }).click();
    await page.locator('pre').first().waitFor();
  });
});
