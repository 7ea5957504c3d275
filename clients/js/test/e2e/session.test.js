// The client against the real binary, with everything in between going wrong.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';

import { FileStorage } from '../../src/file.js';
import { getReconnectToken, HttpError, MemoryStorage, reconnectSession } from '../../src/index.js';
import { Proxy } from '../support/proxy.js';
import { AGENT, Server } from '../support/server.js';
import { upTo, Witness } from '../support/session.js';

const patient = { timeout: 120_000 };

/** Ends everything a test has begun, in the opposite order. */
function scope(t) {
  const things = [];
  t.after(async () => {
    for (const thing of things.reverse()) await (thing.session ? thing.session.close() : thing.end());
  });
  return (thing) => (things.push(thing), thing);
}

describe('a session on a server', patient, () => {
  /** @type {Server} */
  let server;
  before(async () => (server = await Server.start()));
  after(() => server.end());

  it('sends, and gets every event of the answer once and in order', async (t) => {
    const witness = scope(t)(new Witness(server.url));
    await witness.session.connect();
    const accepted = await witness.session.send({ burst: 250 });
    assert.equal(accepted.in_seq, 1);
    await witness.until('the answer', () => witness.answers() === 1);
    assert.deepEqual(witness.seqs, upTo(witness.events.length));
    assert.equal(witness.events.filter((event) => event.event === 'agent.part').length, 250);
    assert.deepEqual(witness.states, ['connecting', 'connected']);
  });

  it('can be iterated over', async (t) => {
    const { session } = scope(t)(new Witness(server.url));
    const seqs = [];
    void session.send({ burst: 5 });
    void session.connect();
    for await (const event of session) {
      seqs.push(event.seq);
      if (event.event === 'agent.answer') break;
    }
    assert.deepEqual(seqs, upTo(seqs.length));
  });

  it('survives its connection being cut in the middle of an answer', async (t) => {
    const witness = scope(t)(new Witness(server.url));
    await witness.session.connect();
    for (let cut = 0; cut < 5; cut += 1) {
      const answered = witness.answers();
      void witness.session.send({ burst: 100 });
      await witness.until('a part', () => witness.events.length > cut * 100);
      witness.session.cut();
      await witness.until('the answer', () => witness.answers() === answered + 1);
    }
    assert.deepEqual(witness.seqs, upTo(witness.events.length));
    assert.deepEqual(witness.gaps, []);
    assert.ok(witness.states.includes('reconnecting'));
  });

  it('goes on where it was after a restart of the program, from a file', async (t) => {
    const own = scope(t);
    const storage = new FileStorage(join(server.directory, 'session.json'));
    const first = new Witness(server.url, { storage });
    await first.session.connect();
    await first.session.send({ burst: 50 });
    await first.until('some parts', () => first.events.length >= 20);
    await first.session.close();
    assert.deepEqual(first.statuses.at(-1), { state: 'stopped', reason: 'left' });

    const second = own(new Witness(server.url, { storage }));
    await second.session.connect();
    assert.equal(second.session.status.how, 'resumed');
    await second.until('the answer', () => first.answers() + second.answers() === 1);
    assert.deepEqual([...first.seqs, ...second.seqs], upTo(first.events.length + second.events.length));
  });

  it('shows a reloaded page everything from the beginning, if that is wanted', async (t) => {
    const own = scope(t);
    const storage = new MemoryStorage();
    const first = new Witness(server.url, { storage });
    await first.session.connect();
    await first.session.send({ burst: 20 });
    await first.until('the answer', () => first.answers() === 1);
    await first.session.close();
    const second = own(new Witness(server.url, { storage, fromBeginning: true }));
    await second.session.connect();
    await second.until('everything', () => second.session.status.caught_up);
    assert.deepEqual(second.seqs.slice(0, first.events.length), first.seqs);
  });

  it('is superseded when another has taken the session, and the other has everything', async (t) => {
    const own = scope(t);
    const storage = new MemoryStorage();
    const first = own(new Witness(server.url, { storage }));
    await first.session.connect();
    await first.session.send({ burst: 10 });
    await first.until('the answer', () => first.answers() === 1);
    const second = own(
      new Witness(server.url, { storage: new MemoryStorage(storage.load()), fromBeginning: true }),
    );
    await second.session.connect();
    await first.until('the end', () => first.session.status.state === 'stopped');
    assert.deepEqual(first.session.status, { state: 'stopped', reason: 'superseded' });
    await second.session.send({ burst: 10 });
    await second.until('both answers', () => second.answers() === 2);
    assert.deepEqual(second.seqs, upTo(second.events.length));
    assert.equal(second.session.status.state, 'connected');
  });

  it('of two that race for a session one is left, and it is complete', async (t) => {
    const own = scope(t);
    const storage = new MemoryStorage();
    const first = new Witness(server.url, { storage });
    await first.session.connect();
    await first.session.close();
    const racers = [0, 1].map(() =>
      own(new Witness(server.url, { storage: new MemoryStorage(storage.load()), fromBeginning: true })),
    );
    const attached = racers.map(({ session }) => session.connect().catch(() => null));
    await Promise.all(attached);
    const stopped = () => racers.filter(({ session }) => session.status.state === 'stopped');
    await Promise.race(racers.map((racer) => racer.until('one stops', () => stopped().length === 1)));
    const [left] = racers.filter((racer) => !stopped().includes(racer));
    await left.session.send({ burst: 10 });
    await left.until('the answer', () => left.answers() === 1);
    assert.deepEqual(left.seqs, upTo(left.events.length));
    assert.equal(stopped()[0].session.status.reason, 'superseded');
  });

  it('gives the state when it is asked for', async (t) => {
    const { session } = scope(t)(new Witness(server.url));
    await session.connect();
    const state = await session.requestState();
    assert.equal(typeof state.signed_state, 'string');
    assert.equal(state.state.session_id, session.sessionId);
  });

  it('ends, and what was kept is forgotten', async (t) => {
    const storage = new MemoryStorage();
    const { session } = scope(t)(new Witness(server.url, { storage }));
    await session.connect();
    const id = session.sessionId;
    await session.end();
    assert.deepEqual(session.status, { state: 'stopped', reason: 'ended' });
    assert.equal(storage.load().session_id, null);
    await assert.rejects(getReconnectToken(id, { baseUrl: server.http }), { name: 'HttpError', status: 400 });
    await assert.rejects(session.send('too late'), { reason: 'not_sent' });
  });

  it('has its token fetched and renewed over HTTP', async (t) => {
    const { session } = scope(t)(new Witness(server.url));
    await session.connect();
    const options = { baseUrl: server.http };
    const { reconnect_token, expires_in_minutes } = await getReconnectToken(session.sessionId, options);
    assert.equal(expires_in_minutes, 15);
    const renewed = await reconnectSession(session.sessionId, reconnect_token, options);
    assert.equal(renewed.success, true);
    assert.notEqual(renewed.reconnect_token, reconnect_token);
    const failed = await reconnectSession(session.sessionId, 'nonsense', options).catch((error) => error);
    assert.ok(failed instanceof HttpError);
    assert.deepEqual([failed.status, failed.reason], [401, 'invalid_token']);
  });

  it('lets a slow application catch up and loses nothing by it', async (t) => {
    const own = scope(t);
    const witness = own(new Witness(server.url, { window: 20 }));
    let slow = true;
    witness.session.on('event', () => (slow ? new Promise((resolve) => setTimeout(resolve, 5)) : undefined));
    await witness.session.connect();
    void witness.session.send({ burst: 300 });
    await witness.until('a connection that was let go', () => witness.states.includes('connection_lost'));
    slow = false;
    await witness.until('the answer', () => witness.answers() === 1);
    assert.deepEqual(witness.seqs, upTo(witness.events.length));
  });
});

describe('a network that breaks', patient, () => {
  it('resets every connection for a while, and nothing is lost, doubled or reordered', async (t) => {
    const own = scope(t);
    const server = own(await Server.start());
    const proxy = own(await Proxy.start(server.port));
    proxy.weather = { resetAfter: () => 20 + Math.random() * 300 };
    const witness = own(new Witness(proxy.url, { messagesInFlight: 4 }));
    void witness.session.connect();
    const accepted = [];
    while (proxy.connections < 8) {
      accepted.push(witness.session.send({ burst: 20 }), witness.session.send({ burst: 20 }));
      await witness.until('two answers', () => witness.answers() === accepted.length, 90_000);
    }
    proxy.weather = {};
    proxy.reset();
    accepted.push(witness.session.send({ burst: 20 }));
    await witness.until('all answers', () => witness.answers() === accepted.length);
    assert.deepEqual(
      (await Promise.all(accepted)).map(({ in_seq }) => in_seq),
      upTo(accepted.length),
    );
    assert.deepEqual(witness.seqs, upTo(witness.events.length));
    assert.deepEqual(witness.gaps, []);
  });

  it('is noticed by missing heartbeats', async (t) => {
    const own = scope(t);
    const server = own(
      await Server.start(['--agent', AGENT, '--heartbeat-interval', '300ms', '--heartbeat-timeout', '600ms']),
    );
    const proxy = own(await Proxy.start(server.port));
    const witness = own(new Witness(proxy.url, { connectTimeout: 500 }));
    await witness.session.connect();
    proxy.weather = { hold: true };
    await witness.until('the loss', () => witness.states.includes('connection_lost'));
    proxy.weather = {};
    await witness.until('the way back', () => witness.session.status.state === 'connected');
    assert.equal(witness.session.status.how, 'resumed');
  });
});

describe('a server that dies', patient, () => {
  it('is killed and restarted three times in mid-answer, and nothing is lost, doubled or reordered', async (t) => {
    const own = scope(t);
    const server = own(await Server.start());
    const witness = own(new Witness(server.url));
    await witness.session.connect();
    for (let kill = 0; kill < 3; kill += 1) {
      const answered = witness.answers();
      const before = witness.events.length;
      const accepted = witness.session.send({ burst: 200 });
      await witness.until('a part', () => witness.events.length > before + 10);
      await server.killAndRestart();
      await accepted;
      await witness.until('the answer', () => witness.answers() === answered + 1);
    }
    assert.deepEqual(witness.seqs, upTo(witness.events.length));
    assert.deepEqual(witness.gaps, []);
    assert.equal(witness.answers(), 3);
    const created = witness.statuses.filter(({ state, how }) => state === 'connected' && how === 'created');
    assert.equal(created.length, 1);
  });

  it('is drained, which is told, and come back to', async (t) => {
    const own = scope(t);
    const server = own(await Server.start(['--agent', AGENT, '--drain-timeout', '1s']));
    const witness = own(new Witness(server.url));
    await witness.session.connect();
    await server.kill('SIGTERM');
    assert.ok(witness.statuses.some((status) => status.draining));
    await server.restart();
    await witness.until('the way back', () => witness.session.status.state === 'connected');
    await witness.session.send({ burst: 3 });
    await witness.until('the answer', () => witness.answers() === 1);
    assert.deepEqual(witness.seqs, upTo(witness.events.length));
  });
});

describe('a session whose time ran out', patient, () => {
  async function scene(t) {
    const own = scope(t);
    const server = own(await Server.start(['--agent', AGENT, '--disconnect-ttl', '500ms']));
    const proxy = own(await Proxy.start(server.port));
    return { own, server, proxy };
  }

  async function staysAwayTooLong({ server, proxy }, witness) {
    const id = witness.session.sessionId;
    proxy.weather = { refuse: true };
    proxy.reset();
    const deadline = Date.now() + 30_000;
    for (let status = ''; status !== 'expired';) {
      assert.ok(Date.now() < deadline, 'it never expires');
      await new Promise((resolve) => setTimeout(resolve, 50));
      status = (await (await fetch(`${server.http}/api/sessions/${id}`)).json()).status;
    }
    proxy.weather = {};
    witness.session.wake();
    return id;
  }

  it('is restored from the saved state, and the numbering goes on', async (t) => {
    const { own, server, proxy } = await scene(t);
    const storage = new MemoryStorage();
    const witness = own(new Witness(proxy.url, { storage }));
    await witness.session.connect();
    await witness.session.send({ burst: 5 });
    await witness.until('the answer', () => witness.answers() === 1);
    const { signed_state } = await witness.session.requestState();
    const old = await staysAwayTooLong({ server, proxy }, witness);
    await witness.until('a restored session', () => witness.statuses.some(({ how }) => how === 'restored'));
    assert.ok(witness.states.includes('restoring'));
    assert.notEqual(witness.session.sessionId, old);
    await witness.session.send({ burst: 5 });
    await witness.until('the next answer', () => witness.answers() === 2);
    assert.deepEqual(witness.seqs, upTo(witness.events.length));
    assert.ok(!witness.events.some(({ event }) => event === 'agent.confused'));
    assert.equal(storage.load().session_id, witness.session.sessionId);
    assert.notEqual(storage.load().snapshot?.signed_state, signed_state, 'what was restored from is cleared');
  });

  it('is followed by a new one, which is told, if there is no state', async (t) => {
    const own = scope(t);
    const server = own(await Server.start(['--disconnect-ttl', '500ms'])); // the built-in agent, which has said nothing yet
    const proxy = own(await Proxy.start(server.port));
    const witness = own(new Witness(proxy.url));
    await witness.session.connect();
    const old = await staysAwayTooLong({ server, proxy }, witness);
    await witness.until(
      'a new session',
      () => witness.session.sessionId !== old && witness.session.sessionId !== null,
    );
    const expired = witness.states.indexOf('expired');
    assert.deepEqual(witness.statuses[expired], { state: 'expired', code: 'SESSION_EXPIRED' });
    assert.equal(witness.statuses[expired + 1].how, 'created');
  });

  it('is the end where no other is wanted', async (t) => {
    const own = scope(t);
    const server = own(await Server.start(['--disconnect-ttl', '500ms']));
    const proxy = own(await Proxy.start(server.port));
    const witness = own(new Witness(proxy.url, { createWhenLost: false }));
    await witness.session.connect();
    await staysAwayTooLong({ server, proxy }, witness);
    await witness.until('the end', () => witness.session.status.state === 'stopped');
    assert.deepEqual(witness.statuses.slice(-2), [
      { state: 'expired', code: 'SESSION_EXPIRED' },
      { state: 'stopped', reason: 'lost', code: 'SESSION_EXPIRED' },
    ]);
  });
});

describe('a server that asks who is calling', patient, () => {
  it('lets a known key in by the first frame, and stops a wrong one', async (t) => {
    const own = scope(t);
    const key = 'key-of-alice-0123456789abcdef';
    const hash = createHash('sha256').update(key).digest('hex');
    const config = join(await scratch(t), 'rejoin.toml');
    writeFileSync(config, `[[api_keys]]\nname = "alice"\nprincipal = "alice"\nkey_sha256 = "${hash}"\n`);
    const server = own(await Server.start(['--config', config, '--agent', AGENT]));
    const alice = own(new Witness(server.url, { token: async () => key }));
    await alice.session.connect();
    await alice.session.send({ burst: 2 });
    await alice.until('the answer', () => alice.answers() === 1);

    const mallory = own(new Witness(server.url, { token: 'wrong' }));
    await assert.rejects(mallory.session.connect());
    assert.deepEqual(mallory.session.status, { state: 'stopped', reason: 'closed', code: 4102 });
  });
});

async function scratch(t) {
  const { mkdtemp, rm } = await import('node:fs/promises');
  const { tmpdir } = await import('node:os');
  const directory = await mkdtemp(join(tmpdir(), 'rejoin-js-'));
  t.after(() => rm(directory, { recursive: true, force: true }));
  return directory;
}
