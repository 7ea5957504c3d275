// What waits until the application has handled what came before it.

import assert from 'node:assert/strict';
import { it } from 'node:test';

import { Handover } from '../src/handover.js';

const item = (seq) => ({ event: 'agent.note', seq });
const settle = () => new Promise((resolve) => setImmediate(resolve));

it('what comes after an item waits until every listener is done with it', async () => {
  const handover = new Handover();
  const seen = [];
  let done = () => {};
  handover.addTaker(
    ({ seq }) => (seen.push(seq), seq === 1 ? new Promise((resolve) => (done = resolve)) : undefined),
  );
  handover.give(item(1));
  handover.afterwards(() => seen.push('saved'));
  handover.give(item(2));
  await settle();
  assert.deepEqual(seen, [1]);
  done();
  await settle();
  assert.deepEqual(seen, [1, 'saved', 2]);
});

it('with listeners that take no time nothing waits at all', () => {
  const handover = new Handover();
  const seen = [];
  handover.addTaker(({ seq }) => void seen.push(seq));
  handover.give(item(1));
  handover.afterwards(() => seen.push('saved'));
  assert.deepEqual(seen, [1, 'saved']);
});

it('items wait for somebody to take them', async () => {
  const handover = new Handover();
  const seen = [];
  handover.give(item(1));
  handover.afterwards(() => seen.push('saved'));
  await settle();
  assert.deepEqual(seen, []);
  const stop = handover.addTaker(({ seq }) => void seen.push(seq));
  assert.deepEqual(seen, [1, 'saved']);
  stop();
  handover.give(item(2));
  assert.equal(handover.length, 1);
});

it('an iteration has handled an item when it asks for the next', async () => {
  const handover = new Handover();
  const seen = [];
  const iteration = handover.iterate();
  handover.give(item(1));
  handover.afterwards(() => seen.push('saved'));
  assert.equal((await iteration.next()).value.seq, 1);
  await settle();
  assert.deepEqual(seen, []);
  const next = iteration.next();
  await settle();
  assert.deepEqual(seen, ['saved']);
  handover.give(item(2));
  assert.equal((await next).value.seq, 2);
  assert.equal((await iteration.return()).done, true);
  assert.equal(handover.handledSeq, 1);
  await settle();
  assert.equal(handover.handledSeq, 2, 'a loop that is left has handled what it had');
});

it('an iteration ends after the last item', async () => {
  const handover = new Handover();
  const seen = [];
  const loop = (async () => {
    for await (const { seq } of handover.iterate()) seen.push(seq);
  })();
  handover.give(item(1));
  handover.give(item(2));
  handover.end();
  await loop;
  assert.deepEqual(seen, [1, 2]);
});

it('what is forgotten is named, and what is under way counts as handled', async () => {
  const handover = new Handover();
  handover.addTaker(() => new Promise(() => {}));
  for (const seq of [1, 2, 3]) handover.give(item(seq));
  assert.deepEqual(
    handover.clear().map(({ seq }) => seq),
    [2, 3],
  );
  assert.deepEqual([handover.handledSeq, handover.length], [1, 0]);
});
