// What the dashboard makes of counts and records, without a browser.

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { byTime, growth, levels, outcomes, quantile, quantiles } from '../home/series.js';
import { entries, stays } from '../home/story.js';
import { ago, clock, short, size, span } from '../home/words.js';

/** @param {number} at_ms @param {Partial<import('../home/api.js').Sample>} [rest] */
const sample = (at_ms, rest = {}) => ({
  ...{
    at_ms,
    attached: 0,
    parked: 0,
    reconnects: {},
    away: [0, 0, 0],
    replayed: 0,
    lost: 0,
    commits: null,
    buffered_bytes: 0,
  },
  ...rest,
});

describe('series', () => {
  it('has the last sample of each stretch of time, and first the one before all of them', () => {
    const samples = [5, 95, 101, 149, 199, 200].map((at) => sample(at));
    const last = byTime(samples, 100, 200, 2).map((one) => one?.at_ms ?? null);
    assert.deepEqual(last, [95, 149, 200]);
    assert.deepEqual(
      byTime([sample(130)], 100, 200, 4).map((one) => one?.at_ms ?? null),
      [null, null, 130, null, null],
    );
  });

  it('tells by how much a count grew, and nothing where that is not known', () => {
    const samples = [sample(110, { replayed: 5 }), sample(130, { replayed: 9 }), sample(170, { replayed: 2 })];
    const last = byTime(samples, 100, 200, 5);
    assert.deepEqual(
      growth(last, (one) => one.replayed),
      [null, 4, null, 0, null],
    );
    assert.deepEqual(
      levels(last, (one) => one.replayed),
      [5, 9, null, 2, null],
    );
  });

  it('finds quantiles between the bounds of buckets, of what happened in a stretch', () => {
    assert.equal(quantile([0, 10, 10], [1, 3], 0.5), 2);
    assert.equal(quantile([4, 4, 4], [1, 3], 0.5), 0.5);
    assert.equal(quantile([0, 0, 4], [1, 3], 0.95), 3, 'beyond the last bound nobody knows');
    assert.equal(quantile([0, 0, 0], [1, 3], 0.5), null);
    const samples = [
      sample(90, { away: [7, 7, 7] }),
      sample(110, { away: [7, 9, 9] }),
      sample(160, { away: [7, 9, 9] }),
    ];
    const last = byTime(samples, 100, 200, 2);
    assert.deepEqual(
      quantiles(last, (one) => one.away, [1, 3], 0.5),
      [2, null],
    );
  });

  it('puts reasons into three groups', () => {
    const reconnects = { reconnected: 3, token_expired: 2, token_reused: 1, rate_limited: 4 };
    const last = byTime([sample(90), sample(150, { reconnects })], 100, 200, 1);
    assert.deepEqual(
      outcomes(last).map(({ name, values }) => [name, values[0]]),
      [
        ['back', 3],
        ['refused', 3],
        ['turned away', 4],
      ],
    );
  });
});

describe('story', () => {
  const at = (/** @type {number} */ second) => new Date(second * 1000).toISOString();
  const moment = (/** @type {number} */ second, /** @type {string} */ what, generation = 1, rest = {}) => ({
    at: at(second),
    what,
    generation,
    ...rest,
  });
  const attempt = (/** @type {number} */ second, /** @type {string} */ reason, transport = 'websocket') => ({
    ...{ at: at(second), session_id: 'a', principal: 'p', address: null, transport, action: 'reconnect' },
    ...{ success: reason === 'reconnected', reason },
  });
  const lines = (/** @type {import('../home/story.js').Entry[]} */ all) =>
    all.map(({ title, details }) => [title, ...details].join(', '));

  it('tells a return once, with what it brought', () => {
    const gap = { from: 2, to: 3, reason: 'evicted', lost: null };
    const moments = [
      moment(0, 'created', 0),
      moment(1, 'attached', 1, { transport: 'websocket' }),
      moment(5, 'parked', 1),
      moment(9, 'attached', 2, { transport: 'websocket' }),
      moment(9, 'resumed', 2, { away_seconds: 4, replayed: 1, gap, lost: 0 }),
    ];
    const told = entries(moments, [attempt(9, 'reconnected')], at(0));
    assert.deepEqual(lines(told), [
      'Made',
      'Attached, over websocket',
      'Parked',
      'Resumed, over websocket, after 4 s away, 1 event replayed, gap: 2 to 3 evicted, covered by the state',
    ]);
    assert.deepEqual(stays(told, 20_000), [
      [1000, 5000],
      [9000, 20_000],
    ]);
  });

  it('knows a client that took another one’s place', () => {
    const moments = [
      moment(1, 'attached', 1),
      moment(2, 'attached', 2),
      moment(2, 'resumed', 2, { away_seconds: null, replayed: 0 }),
    ];
    const told = entries(moments, [], at(0));
    assert.deepEqual(lines(told), ['Attached', 'Taken over, nothing missed']);
    assert.deepEqual(stays(told, 3000), [[1000, 3000]]);
  });

  it('tells of an agent’s death, and of who is there as if there had been none', () => {
    const moments = [
      moment(1, 'attached', 1),
      moment(2, 'agent_died', 1, { status: 'exit status: 1', stderr: ['a', 'b'] }),
      moment(3, 'attached', 2),
      moment(4, 'agent_died', 2, { status: 'signal: 9 (SIGKILL)', stderr: null }),
    ];
    const told = entries(moments, [], at(0));
    assert.deepEqual(lines(told), [
      'Attached',
      'Agent died, exit status: 1',
      'Taken over',
      'Agent died, signal: 9 (SIGKILL), its last words are shown to keys with admin rights',
    ]);
    assert.deepEqual(told.map((entry) => entry.lines ?? null), [null, ['a', 'b'], null, []]);
    assert.deepEqual(stays(told, 5000), [[1000, 5000]]);
  });

  it('takes from the audit trail what the server’s memory does not have', () => {
    const audit = [
      attempt(30, 'token_reused', 'http'),
      attempt(25, 'reconnected', 'http'),
      attempt(21, 'reconnected'),
      attempt(3, 'reconnected'),
    ];
    const told = entries([moment(20, 'parked_by_restart', 1), moment(21, 'attached', 2)], audit, at(20));
    assert.deepEqual(lines(told), [
      'Came back, over websocket, before the timeline begins',
      'Parked, the server was restarted',
      'Attached',
      'Renewed by a token, over http',
      'Refused, token_reused, over http',
    ]);
  });
});

describe('words', () => {
  it('says numbers and times as people do', () => {
    assert.deepEqual([0.0004, 0.0123, 2.04, 59.9, 75, 3700, 90_000].map(span), [
      '400 µs',
      '12.3 ms',
      '2 s',
      '59 s',
      '1 min 15 s',
      '1 h 1 min',
      '1 d 1 h',
    ]);
    assert.deepEqual([0, 7, 2.5, 1234, 12_345, 3e6].map(short), ['0', '7', '2.5', '1,234', '12.3k', '3M']);
    assert.deepEqual([12, 2048, 3.5 * 1024 * 1024].map(size), ['12 B', '2 KiB', '3.5 MiB']);
  });

  it('counts by the server’s clock', () => {
    clock('2026-01-01T00:01:30.000Z');
    assert.equal(ago('2026-01-01T00:00:00.000Z'), '1 min 30 s ago');
    assert.equal(ago('2026-01-01T00:01:29.900Z'), 'just now');
  });
});
