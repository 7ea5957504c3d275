// One owner among the tabs that share a session.

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import { queue } from '../src/tabs.js';
import { FakeLocks } from './support/fakes.js';

const until = async (what, condition) => {
  const deadline = Date.now() + 10_000;
  while (!condition()) {
    if (Date.now() > deadline) assert.fail(`never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

let names = 0;
for (const [kind, makeMeans] of [
  ['with Web Locks', () => ({ locks: new FakeLocks(), BroadcastChannel })],
  ['without Web Locks', () => ({ BroadcastChannel })],
]) {
  describe(kind, () => {
    /** Tabs of one browser, and what each was told last. */
    function browser(t) {
      const means = makeMeans();
      const key = `tabs-${(names += 1)}`;
      const tabs = [];
      t.after(() => tabs.forEach((tab) => tab.turn.leave()));
      return {
        tabs,
        open() {
          const tab = { told: [] };
          tab.turn = queue(
            key,
            { owned: () => tab.told.push('owned'), waiting: () => void tab.told.push('waiting') },
            means,
          );
          tabs.push(tab);
          return tab;
        },
        owners: () => tabs.filter(({ told }) => told.at(-1) === 'owned'),
      };
    }

    it('the first tab owns and the second is told to wait', async (t) => {
      const { open } = browser(t);
      const first = open();
      await until('the first owns', () => first.told.at(-1) === 'owned');
      const second = open();
      await until('the second waits', () => second.told.at(-1) === 'waiting');
      assert.deepEqual([first.told, second.told], [['owned'], ['waiting']]);
    });

    it('of tabs that open at once one owns', async (t) => {
      const { open, owners, tabs } = browser(t);
      for (let tab = 0; tab < 4; tab += 1) open();
      await until(
        'one owns and all know',
        () => tabs.every(({ told }) => told.length > 0) && owners().length === 1,
      );
    });

    it('the next tab owns when the owner is closed', async (t) => {
      const { open, owners, tabs } = browser(t);
      const first = open();
      await until('the first owns', () => first.told.at(-1) === 'owned');
      open();
      open();
      await until('the others wait', () => tabs.slice(1).every(({ told }) => told.at(-1) === 'waiting'));
      first.turn.leave();
      first.told.push('left');
      await until('another owns', () => owners().length === 1);
    });

    it('a tab that leaves before it is told anything is told nothing, and holds nobody up', async (t) => {
      const { open } = browser(t);
      const first = open();
      first.turn.leave();
      const second = open();
      await until('the second owns', () => second.told.at(-1) === 'owned');
      assert.deepEqual(first.told, []);
    });

    it('a tab that takes over owns, and the owner before it waits', async (t) => {
      const { open, owners, tabs } = browser(t);
      const first = open();
      await until('the first owns', () => first.told.at(-1) === 'owned');
      open();
      const third = open();
      await until('the others wait', () => tabs.slice(1).every(({ told }) => told.at(-1) === 'waiting'));
      third.turn.takeOver();
      await until('the third owns', () => third.told.at(-1) === 'owned' && owners().length === 1);
      assert.deepEqual(first.told, ['owned', 'waiting']);
      third.turn.leave();
      third.told.push('left');
      await until('one of the others owns', () => owners().length === 1);
    });
  });
}

it('a session that is kept for one tab alone has no queue', async () => {
  const told = [];
  queue(undefined, { owned: () => told.push('owned'), waiting: () => void told.push('waiting') });
  await until('it owns', () => told.length > 0);
  assert.deepEqual(told, ['owned']);
});
