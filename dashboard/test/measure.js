// See dashboard/measure.

import { launch, watch } from './support/browser.js';
import { Backend } from './support/people.js';
import { Server } from './support/server.js';

const SESSIONS = Number(process.env.SESSIONS ?? 10_000);
const RATE = Number(process.env.RATE ?? 1_000);
const SECONDS = Number(process.env.DURATION ?? 20);
const ALLOWED = 100;

/** Makes the sessions, many at a time. @param {Backend} backend */
async function fill(backend) {
  let left = SESSIONS;
  const worker = async () => {
    while (left > 0) {
      left -= 1;
      await backend.make({ client_id: `client-${left}`, app_version: '1.0' });
    }
  };
  await Promise.all(Array.from({ length: 64 }, worker));
}

/** Publishes at the rate until stopped. @param {Backend} backend @param {string} id
 *  @returns {() => Promise<number>} stops; says how many a second there were */
function publishing(backend, id) {
  const [began, pieces] = [performance.now(), 20];
  let [sent, stopped] = [0, false];
  const run = async () => {
    while (!stopped) {
      const due = Math.floor(((performance.now() - began) / 1000) * RATE) - sent;
      if (due < RATE / pieces) {
        await new Promise((resolve) => setTimeout(resolve, 5));
        continue;
      }
      await backend.publish(id, due, { text: 'a thought of some length, as agents have them', step: sent });
      sent += due;
    }
  };
  const running = run();
  return async () => {
    stopped = true;
    await running;
    return (sent / (performance.now() - began)) * 1000;
  };
}

/** A page that notes its long tasks. @param {import('playwright-core').Browser} browser */
async function noting(browser) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await page.addInitScript(() => {
    const tasks = /** @type {number[]} */ ([]);
    Object.assign(globalThis, { tasks });
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({
      type: 'longtask',
      buffered: true,
    });
  });
  return page;
}

/** @param {import('playwright-core').Page} page @returns {Promise<number[]>} */
const tasks = (page) => page.evaluate(() => /** @type {any} */ (globalThis).tasks.splice(0));

/** @param {import('playwright-core').Page} page */
const firstPaint = (page) =>
  page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? Number.NaN);

/** @param {import('playwright-core').Page} page milliseconds since it was asked for */
const since = (page) => page.evaluate(() => performance.now());

/** Opens a view and says when what was there.
 *  @param {import('playwright-core').Page} page @param {string} url @param {() => Promise<unknown>} drawn */
async function opening(page, url, drawn) {
  await page.goto('about:blank');
  await page.goto(url, { waitUntil: 'commit' });
  await drawn();
  return { whole: await since(page), paint: await firstPaint(page), long: await tasks(page) };
}

/** @param {number[]} durations */
const longest = (durations) => Math.max(0, ...durations);

/** A task that takes long is noted, or what follows says nothing. @param {import('playwright-core').Page} page */
async function check(page) {
  await page.goto('about:blank');
  await page.evaluate(
    () =>
      new Promise((resolve) =>
        setTimeout(() => {
          for (const until = performance.now() + 150; performance.now() < until;);
          setTimeout(resolve, 200);
        }),
      ),
  );
  if (longest(await tasks(page)) < 150) throw new Error('a long task was not noted');
}

const server = await Server.start(['--max-sessions-per-principal', '100000', '--max-sessions', '200000']);
const browser = await launch();
try {
  const backend = new Backend(server);
  console.log(`making ${SESSIONS} sessions …`);
  await fill(backend);
  const id = await backend.make({ client_id: 'measured' });
  const page = await noting(browser);
  const complaints = watch(page);
  await check(page);
  const report = [];
  const row = (/** @type {string} */ what, /** @type {number} */ value, unit = 'ms') =>
    report.push({ what, value: `${Math.round(value)} ${unit}` });
  /** Browsers tell of tasks over 50 ms only. */
  const task = (/** @type {string} */ what, /** @type {number[]} */ durations) =>
    report.push({ what, value: durations.length ? `${Math.round(longest(durations))} ms` : 'under 50 ms' });

  const overview = await opening(page, `${server.http}/#/`, () =>
    page.getByRole('img', { name: /^Sessions: parked 1/ }).waitFor(),
  );
  row('overview: first contentful paint', overview.paint);
  row('overview: plots drawn', overview.whole);
  const listing = await opening(page, `${server.http}/#/sessions`, () =>
    page.getByText(`${(SESSIONS + 1).toLocaleString('en')} sessions`).waitFor(),
  );
  row('list: first contentful paint', listing.paint);
  row('list: rows drawn', listing.whole);
  await page.evaluate(() => Object.assign(globalThis, { typed: performance.now() }));
  await page.getByRole('searchbox').fill('client-77');
  await page.getByText(/with “client-77”/).waitFor();
  row(
    'list: from typing to what was found',
    await page.evaluate(() => performance.now() - /** @type {any} */ (globalThis).typed),
  );
  await page.getByRole('searchbox').fill('');
  await page.getByText(`${(SESSIONS + 1).toLocaleString('en')} sessions`).waitFor();
  for (let step = 1; step <= 40; step += 1) {
    await page
      .getByRole('table')
      .evaluate((table, share) => (table.scrollTop = table.scrollHeight * share), step / 40);
    await page.waitForTimeout(50);
  }
  task('list: longest task, opening, searching, scrolling to its end', [...listing.long, ...(await tasks(page))]);

  const stop = publishing(backend, id);
  await page.waitForTimeout((SECONDS / 2) * 1000);
  task('list: longest task with events arriving', await tasks(page));
  const session = await opening(page, `${server.http}/#/sessions/${id}`, () =>
    page.getByRole('table', { name: 'Events' }).getByRole('button').first().waitFor(),
  );
  row('session: first contentful paint', session.paint);
  row('session: first events drawn', session.whole);
  await page.waitForTimeout(SECONDS * 1000);
  const seen = Number(
    (await page.locator('.panel:has(.events) header .small').first().textContent())?.replace(/\D/g, ''),
  );
  const during = await tasks(page);
  const rate = await stop();
  row('session: events published', rate, 'a second');
  row('session: events the page took', seen, 'in all');
  task(`session: longest task in ${SECONDS} s with events arriving`, [...session.long, ...during]);
  console.table(report);
  const worst = longest([...overview.long, ...listing.long, ...session.long, ...during]);
  const failures = [
    worst > ALLOWED && `a task took ${Math.round(worst)} ms`,
    rate < RATE * 0.95 && `only ${Math.round(rate)} events a second were published`,
    complaints.length > 0 && complaints.join('\n'),
  ].filter(Boolean);
  for (const failure of failures) console.error(failure);
  process.exitCode = failures.length ? 1 : 0;
} finally {
  await browser.close();
  await server.end();
}
