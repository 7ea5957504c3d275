// What a browser does to a session: offline and online, hidden and shown, asleep, two tabs.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, it, mock } from 'node:test';

import { LocalStorage, MemoryStorage, Session } from '../src/index.js';
import { created, event, FakeArea, FakeLocks, FakeWebSocket, resumed } from './support/fakes.js';

const settle = () => new Promise((resolve) => setImmediate(resolve));
const sessions = [];

beforeEach(() => {
  FakeWebSocket.reset();
  globalThis.window = new EventTarget();
  globalThis.document = Object.assign(new EventTarget(), { visibilityState: 'visible' });
});

afterEach(async () => {
  mock.timers.reset();
  for (const session of sessions.splice(0)) await session.close();
  delete globalThis.window;
  delete globalThis.document;
});

/** A session that is attached, with its socket. */
async function attached(options = {}) {
  const session = new Session('ws://server/ws', { WebSocket: FakeWebSocket, tabs: false, ...options });
  sessions.push(session);
  const connected = session.connect();
  await settle();
  await FakeWebSocket.last().open();
  FakeWebSocket.last().say(created());
  await connected;
  return session;
}

it('offline lets the connection go, and online comes back at once', async () => {
  const session = await attached();
  const socket = FakeWebSocket.last();
  window.dispatchEvent(new Event('offline'));
  assert.equal(session.status.state, 'reconnecting');
  assert.ok(socket.closedByClient);
  window.dispatchEvent(new Event('online'));
  assert.equal(session.status.state, 'connecting');
  await FakeWebSocket.last().open();
  assert.equal(FakeWebSocket.all.length, 2);
  assert.equal(FakeWebSocket.last().sent[0].event, 'user.reconnect');
});

it('a page that is shown again tries at once', async () => {
  const session = await attached();
  FakeWebSocket.last().end();
  assert.equal(session.status.state, 'reconnecting');
  document.visibilityState = 'hidden';
  document.dispatchEvent(new Event('visibilitychange'));
  assert.equal(FakeWebSocket.all.length, 1);
  document.visibilityState = 'visible';
  document.dispatchEvent(new Event('visibilitychange'));
  assert.equal(FakeWebSocket.all.length, 2);
});

it('a machine that slept does not trust its connection', async () => {
  mock.timers.enable({ apis: ['setInterval', 'setTimeout', 'Date'], now: 1_000_000 });
  const session = await attached();
  mock.timers.setTime(1_000_000 + 20_000); // the lid was closed: no timer ran
  mock.timers.tick(5_000);
  assert.equal(session.status.state, 'connected', 'a heartbeat is not due yet');
  mock.timers.setTime(1_000_000 + 90_000);
  mock.timers.tick(5_000);
  assert.equal(FakeWebSocket.all.length, 2, 'another socket is opened at once');
});

it('a page that goes away has saved where it is', async () => {
  const storage = new LocalStorage('k', new FakeArea());
  const session = await attached({ storage });
  session.on('event', () => {});
  for (const seq of [1, 2, 3]) FakeWebSocket.last().say(event(seq));
  assert.equal(storage.load().position.seq, 0, 'it is saved with the next ack');
  window.dispatchEvent(new Event('pagehide'));
  assert.equal(storage.load().position.seq, 3);
});

it('nothing is acked that was not handled', async () => {
  const session = await attached();
  let done = () => {};
  session.on('event', ({ seq }) => (seq === 2 ? new Promise((resolve) => (done = resolve)) : undefined));
  const socket = FakeWebSocket.last();
  for (const seq of [1, 2, 3]) socket.say(event(seq));
  socket.say({ event: 'system.heartbeat', metadata: { seq: 3 } });
  const acks = () =>
    socket.sent.filter((frame) => frame.event === 'user.ack').map((frame) => frame.metadata.last_seq);
  await settle();
  assert.deepEqual(acks(), []);
  done();
  await settle();
  assert.deepEqual(acks(), [3]);
});

it('what can not be saved is not acked, and that is told once', async () => {
  let full = false;
  const storage = {
    load: () => null,
    save: () => {
      if (full) throw new Error('full');
    },
  };
  const session = await attached({ storage });
  const errors = [];
  session.on('error', (error) => errors.push(error.message));
  session.on('event', () => {});
  const socket = FakeWebSocket.last();
  full = true;
  for (const seq of [1, 2]) {
    socket.say(event(seq));
    socket.say({ event: 'system.heartbeat', metadata: { seq } });
  }
  assert.equal(socket.sent.filter((frame) => frame.event === 'user.ack').length, 0);
  assert.deepEqual(errors, ['full']);
});

it('a listener may send, and what it throws stops nothing', async (t) => {
  const session = await attached();
  const thrown = [];
  const onThrown = (error) => thrown.push(error.message);
  const others = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', onThrown);
  t.after(() => {
    process.removeListener('uncaughtException', onThrown);
    others.forEach((listener) => process.on('uncaughtException', listener));
  });
  session.on('event', () => {
    void session.send('back');
    throw new Error('oops');
  });
  FakeWebSocket.last().say(event(1));
  await settle();
  assert.equal(FakeWebSocket.last().sent.at(-1).content, 'back');
  assert.deepEqual(thrown, ['oops']);
});

it('a gap is told in an iteration, with the state that stands in for it', async () => {
  const session = await attached();
  const seen = [];
  void (async () => {
    for await (const { event: name, seq, metadata } of session)
      seen.push(seq ?? `${name} ${metadata.code ?? metadata.seq}`);
  })();
  const socket = FakeWebSocket.last();
  socket.say(event(1));
  socket.say({
    event: 'system.notice',
    metadata: { code: 'gap', reason: 'evicted', from: 2, to: 4, lost: null },
  });
  socket.say({ event: 'agent.state_exported', metadata: { seq: 4, signed_state: 's', session_state: {} } });
  socket.say(event(5));
  socket.say({ event: 'agent.state_exported', metadata: { seq: 5, signed_state: 's', session_state: {} } });
  socket.say(event(6));
  await settle();
  assert.deepEqual(seen, [1, 'system.notice gap', 'agent.state_exported 4', 5, 6]);
});

it('a session that is left saves up to what its application has handled', async () => {
  const storage = new MemoryStorage();
  const session = await attached({ storage });
  session.on('event', ({ seq }) => (seq === 2 ? new Promise(() => {}) : undefined));
  for (const seq of [1, 2, 3, 4]) FakeWebSocket.last().say(event(seq));
  await session.close();
  assert.equal(storage.load().position.seq, 2, 'what is under way counts as handled');
});

it('a loop may wait for the session to be left', async () => {
  const session = await attached();
  FakeWebSocket.last().say(event(1));
  for await (const _ of session) await session.close();
  assert.equal(session.status.reason, 'left');
});

it('a token is sent first, and the session asked for when it was taken', async () => {
  const session = new Session('ws://server/ws', {
    WebSocket: FakeWebSocket,
    token: async () => 'key',
    about: { client_id: 'me' },
  });
  sessions.push(session);
  void session.connect();
  await settle();
  const socket = FakeWebSocket.last();
  await socket.open();
  socket.say({ event: 'system.connected', content: { heartbeat_interval_seconds: 5 } });
  assert.deepEqual(socket.sent, [{ event: 'user.authenticate', content: { token: 'key' } }]);
  socket.say({ event: 'system.authenticated', content: { principal: 'me' } });
  assert.deepEqual(socket.sent[1], { event: 'user.create_session', content: { client_id: 'me' } });
});

it('a connection that takes too long to open is another attempt', async () => {
  mock.timers.enable({ apis: ['setTimeout', 'Date'], now: 1_000_000 });
  const session = new Session('ws://server/ws', { WebSocket: FakeWebSocket, connectTimeout: 1_000 });
  sessions.push(session);
  void session.connect();
  await settle();
  mock.timers.tick(1_000);
  assert.equal(session.status.state, 'reconnecting');
});

it('the same id is the same message', async () => {
  const session = await attached();
  const [first, again] = [
    session.send('once', { messageId: 'm1' }),
    session.send('once', { messageId: 'm1' }),
  ];
  FakeWebSocket.last().say({
    event: 'system.accepted',
    content: { message_id: 'm1', in_seq: 1, duplicate: false },
  });
  assert.deepEqual(await Promise.all([first, again]), Array(2).fill({ message_id: 'm1', in_seq: 1 }));
  assert.equal(FakeWebSocket.last().sent.filter(({ event: name }) => name === 'user.message').length, 1);
});

it('a session that has stopped can be left, whoever did not take its events', async () => {
  const storage = new MemoryStorage();
  const session = await attached({ storage });
  FakeWebSocket.last().say(event(1));
  FakeWebSocket.last().say({ event: 'system.notice', metadata: { code: 'superseded' } });
  assert.equal(session.status.reason, 'superseded');
  await session.close();
  assert.equal(session.status.reason, 'superseded');
  assert.equal(storage.load().position.seq, 0, 'nobody has handled it');
});

it('addresses may be relative to the page, and http means ws', async (t) => {
  globalThis.location = { href: 'https://page.example/chat/' };
  t.after(() => delete globalThis.location);
  for (const [given, expected] of [
    ['/ws', 'wss://page.example/ws'],
    ['http://server:8181/ws', 'ws://server:8181/ws'],
  ]) {
    const session = new Session(given, { WebSocket: FakeWebSocket });
    sessions.push(session);
    void session.connect();
    await settle();
    assert.equal(FakeWebSocket.last().url, expected);
  }
});

it('without a WebSocket the message says what to do', () => {
  const { WebSocket } = globalThis;
  delete globalThis.WebSocket;
  try {
    assert.throws(() => new Session('ws://server/ws'), /options\.WebSocket/);
  } finally {
    if (WebSocket) globalThis.WebSocket = WebSocket;
  }
});

for (const pages of [false, true]) {
  it(`the second tab is told, and takes over; ${pages ? 'each tab shows everything' : 'each event is handled in one tab'}`, async (t) => {
    withLocks(t);
    const storage = new LocalStorage(`two-tabs-${pages}`, new FakeArea());
    const first = await attached({ storage, tabs: true, fromBeginning: pages });
    first.on('event', () => {});
    FakeWebSocket.last().say(event(1));

    const second = new Session('ws://server/ws', { WebSocket: FakeWebSocket, storage, fromBeginning: pages });
    sessions.push(second);
    const connected = second.connect();
    await settle();
    assert.deepEqual(second.status, { state: 'stopped', reason: 'other_tab' });
    assert.equal(FakeWebSocket.all.length, 1);
    const accepted = second.send('when it is my turn', { messageId: 'm1' });

    const told = new Promise((resolve) =>
      first.on('status', ({ reason }) => reason === 'other_tab' && resolve()),
    );
    second.takeOver();
    await told;
    while (FakeWebSocket.all.length < 2) await settle();
    await FakeWebSocket.last().open();
    assert.deepEqual(FakeWebSocket.last().sent[0].content, {
      last_seq: pages ? 0 : 1,
      batch: true,
      epoch: 'e1',
      reconnect_token: 'token-1',
    });
    FakeWebSocket.last().say(resumed(pages ? 1 : 2));
    if (pages) FakeWebSocket.last().say(event(1));
    await connected;
    assert.equal(FakeWebSocket.last().sent[1].message_id, 'm1');
    FakeWebSocket.last().say({
      event: 'system.accepted',
      content: { message_id: 'm1', in_seq: 1, duplicate: false },
    });
    assert.equal((await accepted).in_seq, 1);

    second.on('event', () => {});
    FakeWebSocket.last().say(event(2));
    await second.close();
    while (FakeWebSocket.all.length < 3) await settle();
    assert.equal(first.status.state, 'connecting', 'the first goes on when the second is closed');
    await FakeWebSocket.last().open();
    assert.equal(FakeWebSocket.last().sent[0].content.last_seq, pages ? 1 : 2);
  });
}

it('a tab that was superseded by another device does not send the next tab after it', async (t) => {
  withLocks(t);
  const storage = new LocalStorage('superseded', new FakeArea());
  const first = await attached({ storage, tabs: true });
  const second = new Session('ws://server/ws', { WebSocket: FakeWebSocket, storage });
  sessions.push(second);
  void second.connect();
  await settle();
  FakeWebSocket.last().end(4100, '{"reason":"superseded"}');
  assert.equal(first.status.reason, 'superseded');
  await settle();
  assert.deepEqual([second.status.reason, FakeWebSocket.all.length], ['other_tab', 1]);
});

it('a tab that loses the session while it reads what was kept opens nothing', async (t) => {
  withLocks(t);
  let loaded = () => {};
  const storage = {
    key: 'slow',
    load: () => new Promise((resolve) => (loaded = () => resolve(null))),
    save() {},
  };
  const first = new Session('ws://server/ws', { WebSocket: FakeWebSocket, storage });
  const second = new Session('ws://server/ws', {
    WebSocket: FakeWebSocket,
    storage: { ...storage, load: () => null },
  });
  sessions.push(first, second);
  void first.connect();
  await settle();
  void second.connect();
  await settle();
  second.takeOver();
  while (FakeWebSocket.all.length < 1) await settle();
  loaded();
  await settle();
  assert.equal(FakeWebSocket.all.length, 1);
  assert.equal(first.status.reason, 'other_tab');
});

/** The tabs of this test have Web Locks. */
function withLocks(t) {
  const navigator = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  Object.defineProperty(globalThis, 'navigator', { value: { locks: new FakeLocks() }, configurable: true });
  t.after(() =>
    navigator ? Object.defineProperty(globalThis, 'navigator', navigator) : delete globalThis.navigator,
  );
}
