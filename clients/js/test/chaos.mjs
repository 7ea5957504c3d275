// Fifty clients, a server that is killed ten times, and a network that resets connections: at the
// applications' listeners nothing may be lost, doubled or out of order, and every accepted message is
// answered once.
//
//   node test/chaos.mjs           50 clients, 10 kills
//   node test/chaos.mjs --short   10 clients, 3 kills

import { judge } from './chaos/judge.mjs';
import { Visitor } from './chaos/visitor.mjs';
import { Proxy } from './support/proxy.js';
import { Server } from './support/server.js';

const short = process.argv.includes('--short');
const [CLIENTS, KILLS] = short ? [10, 3] : [50, 10];
const TO_CATCH_UP = 120_000;

const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));
const between = (least, most) => least + Math.random() * (most - least);

async function main() {
  const server = await Server.start();
  const proxy = await Proxy.start(server.port);
  proxy.weather = { resetAfter: () => between(500, 15_000) };
  const visitors = Array.from({ length: CLIENTS }, (_, number) => new Visitor(proxy.url, number % 4 === 0));
  const lives = Promise.all(visitors.map((visitor) => visitor.run()));
  for (let kill = 0; kill < KILLS; kill += 1) {
    await sleep(between(2_000, 5_000));
    await server.killAndRestart();
  }
  await sleep(2_000);
  proxy.weather = {};
  for (const visitor of visitors) visitor.finish();
  const cleared = Date.now();
  const late = sleep(TO_CATCH_UP).then(() => 'late');
  if ((await Promise.race([lives, late])) === 'late') {
    const behind = visitors.filter((visitor) => !visitor.events.at(-1)?.content?.last);
    throw new Error(
      `${behind.length} clients did not catch up; the server says: ${server.log().slice(-2_000)}`,
    );
  }
  const caughtUp = Date.now() - cleared;
  const tally = await judgeAll(visitors, server);
  console.log(
    `chaos: ${CLIENTS} clients, ${KILLS} kills, ${JSON.stringify(tally)}, caught up in ${caughtUp} ms`,
  );
  if (tally.attached < CLIENTS * 2) throw new Error('the network was kind');
  await proxy.end();
  await server.end();
}

async function judgeAll(visitors, server) {
  const tally = { events: 0, messages: 0, attached: 0, lost_doubled_reordered: 0 };
  for (const visitor of visitors) {
    const violation = judge(visitor, await record(server, visitor.sessionId));
    if (violation) throw new Error(`${visitor.sessionId}: ${violation}`);
    tally.events += visitor.events.length;
    tally.messages += visitor.accepted.length;
    tally.attached += visitor.attached;
  }
  return tally;
}

/** The out log as the server holds it, read anew from the first event. */
async function record(server, id) {
  const events = [];
  for (;;) {
    const after = events.at(-1)?.seq ?? 0;
    const answer = await (await fetch(`${server.http}/api/sessions/${id}/events?after=${after}`)).json();
    if (answer.gap) throw new Error(`the server does not have its record: ${JSON.stringify(answer.gap)}`);
    events.push(...answer.events);
    if (answer.events.length === 0 || events.at(-1).seq >= answer.last_seq) return events;
  }
}

await main();
process.exit(0); // agents that are still at work end with the server
