// The judge of the chaos run notices what a listener loses, doubles or swaps.

import assert from 'node:assert/strict';
import { it } from 'node:test';

import { judge } from './chaos/judge.mjs';

const part = (seq) => ({ seq, event: 'agent.part', content: {} });
const answer = (seq, message_id) => ({ seq, event: 'agent.answer', content: { message_id } });
const record = [part(1), part(2), answer(3, 'a'), part(4), answer(5, 'b')];
const accepted = [
  { message_id: 'a', in_seq: 1 },
  { message_id: 'b', in_seq: 2 },
];
const good = { events: record, accepted, surprises: [] };

it('a good testimony is good', () => assert.equal(judge(good, record), null));

for (const [what, testimony, verdict] of [
  ['an event is lost', { events: record.filter(({ seq }) => seq !== 2) }, '2 never came'],
  ['an event is doubled', { events: [...record.slice(0, 2), record[1], ...record.slice(2)] }, '2 came twice'],
  [
    'two events are swapped',
    { events: [record[0], record[2], record[1], ...record.slice(3)] },
    '2 came after 3',
  ],
  ['the last event is missing', { events: record.slice(0, 4) }, '5 was not caught up with'],
  [
    'an event is another',
    { events: [{ ...record[0], content: 'other' }, ...record.slice(1)] },
    '1 is not as recorded',
  ],
  [
    'a message has no answer',
    { accepted: [...accepted, { message_id: 'c', in_seq: 3 }] },
    'c was answered 0 times',
  ],
  ['messages are swapped', { accepted: [accepted[1], accepted[0]] }, 'b is out of order'],
  ['there was a gap', { surprises: ['gap'] }, 'surprised: gap'],
]) {
  it(`it is noticed that ${what}`, () => assert.equal(judge({ ...good, ...testimony }, record), verdict));
}
