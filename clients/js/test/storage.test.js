// Where sessions are kept.

import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { it } from 'node:test';

import { FileStorage } from '../src/file.js';
import { NOTHING_SAVED } from '../src/machine.js';
import { Keeper, LocalStorage, MemoryStorage } from '../src/storage.js';
import { FakeArea } from './support/fakes.js';

const saved = {
  session_id: 'sess_one',
  position: { epoch: 'e1', seq: 5 },
  token: 't',
  snapshot: { signed_state: 's', seq: 4 },
};

async function directory(t) {
  const path = await mkdtemp(join(tmpdir(), 'rejoin-js-'));
  t.after(() => rm(path, { recursive: true }));
  return path;
}

it('memory and localStorage give back what was saved last', () => {
  for (const storage of [new MemoryStorage(), new LocalStorage('k', new FakeArea())]) {
    assert.equal(storage.load(), null);
    storage.save(saved);
    assert.deepEqual(storage.load(), saved);
  }
});

it('localStorage forgets a session that was ended', () => {
  const area = new FakeArea();
  const storage = new LocalStorage('k', area);
  storage.save(saved);
  storage.save(NOTHING_SAVED);
  assert.equal(area.items.size, 0);
});

it('what another version left in localStorage begins anew', () => {
  const area = new FakeArea();
  area.setItem('k', '{half');
  assert.equal(new LocalStorage('k', area).load(), null);
});

it("a file is its owner's alone, and gives back what was saved last", async (t) => {
  const path = join(await directory(t), 'session.json');
  const storage = new FileStorage(path);
  assert.equal(await storage.load(), null);
  await storage.save(saved);
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.deepEqual(await new FileStorage(path).load(), saved);
});

it('saves of a file that overtake each other leave the last one', async (t) => {
  const path = join(await directory(t), 'session.json');
  const storage = new FileStorage(path);
  const saves = [1, 2, 3, 4, 5].map((seq) => storage.save({ ...saved, position: { epoch: 'e1', seq } }));
  await Promise.all(saves);
  assert.equal(JSON.parse(await readFile(path, 'utf8')).position.seq, 5);
});

it('a damaged file is an error and no new session', async (t) => {
  const path = join(await directory(t), 'session.json');
  await writeFile(path, '{half');
  await assert.rejects(new FileStorage(path).load());
});

it('a save that fails is told once until it works again', async () => {
  let broken = true;
  const told = [];
  const keeper = new Keeper(
    {
      load: () => null,
      save: async () => {
        if (broken) throw new Error('full');
      },
    },
    (error) => told.push(error.message),
  );
  await keeper.save(saved);
  await keeper.save(saved);
  assert.deepEqual([told, keeper.failed], [['full'], true]);
  broken = false;
  await keeper.save(saved);
  assert.equal(keeper.failed, false);
});
