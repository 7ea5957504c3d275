// The playground as a person meets it: asks, waits, looks; and what the built-in agent says, to the letter.

import assert from 'node:assert/strict';

import { openTab } from './browser.js';

/** Whatever else the machine has to do, an answer does not take longer. */
const PATIENCE = 45_000;

/** What the built-in agent does before it answers. */
const WORK = [
  'plan Understand the question → Count with a tool → Write the answer',
  'thinks Reading the question.',
  'thinks This can be counted.',
  'thinks There is a tool for that.',
];

/** @param {string} question @param {number} answered messages answered before in the session */
export function answerTo(question, answered) {
  const words = question.split(/\s+/).filter(Boolean).length;
  return (
    `You wrote “${question}”: ${words} words and ${[...question].length} characters. Before this message I had ` +
    `answered ${answered} in this session. Cut the connection and come back: nothing of this is lost.`
  );
}

export class Playground {
  /** What the status said so far. @type {string[]} */
  words = [];
  /** @type {string[]} */
  #asked = [];

  /**
   * Opens it in a tab of its own.
   * @param {import('node:test').TestContext} t @param {Parameters<typeof openTab>[1]} where
   * @param {string} origin @param {Parameters<typeof openTab>[2]} [options]
   */
  static async open(t, where, origin, options) {
    const playground = new Playground();
    playground.page = await openTab(t, where, options);
    await playground.page.exposeFunction('noteWords', (words) => playground.words.push(words));
    await playground.page.addInitScript(noteStatus);
    await playground.page.goto(`${origin}/play`);
    return playground;
  }

  /** What other tabs, or earlier ones, have asked in the same session. @param {string[]} questions */
  knows(...questions) {
    this.#asked.push(...questions);
    return this;
  }

  /** @param {string} question */
  async ask(question) {
    this.#asked.push(question);
    await this.page.getByLabel('Your question').fill(question);
    await this.page.getByRole('button', { name: 'Ask', exact: true }).click();
  }

  /** The answer is being written, and this many pieces of it are there. */
  async isWriting(pieces = 2) {
    await this.page.waitForFunction(
      (pieces) => (document.querySelector('.answer.writing')?.childNodes.length ?? 0) >= pieces,
      pieces,
      { timeout: PATIENCE },
    );
  }

  cutSwitch() {
    return this.page.getByRole('switch', { name: 'Cut the connection' });
  }

  /** @param {string|RegExp} words */
  async says(words) {
    await this.page.locator('#status-words').filter({ hasText: words }).waitFor({ timeout: PATIENCE });
  }

  /** It has said this at some time, or does so soon; however short that was. @param {RegExp} words */
  async hasSaid(words) {
    const deadline = Date.now() + PATIENCE;
    while (!this.words.some((said) => words.test(said))) {
      assert.ok(Date.now() < deadline, `never ${words}, but: ${this.words.join(' | ')}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** It could not connect several times. Which attempts are shown depends on how fast they follow each other. */
  async keepsTrying() {
    await this.hasSaid(/attempt ([3-9]|\d{2,})/);
  }

  /** @param {'received'|'replayed'|'dropped'|'missing'} what */
  async count(what) {
    return Number(await this.page.locator(`#${what}`).textContent());
  }

  /** All of the answers are there, to the letter, and the strip has every number once. */
  async isComplete() {
    await this.textIsComplete();
    await this.hasEveryNumberOnce();
  }

  /** All of the answers are there, to the letter. */
  async textIsComplete() {
    const { page } = this;
    const turns = page.locator('.turn');
    await page.locator(`.turn.complete >> nth=${this.#asked.length - 1}`).waitFor({ timeout: PATIENCE });
    assert.equal(await turns.count(), this.#asked.length);
    for (const [index, question] of this.#asked.entries()) {
      const turn = turns.nth(index);
      assert.equal(await turn.locator('.question p').textContent(), question);
      assert.equal(await turn.locator('.answer').textContent(), answerTo(question, index));
      const work = await turn.locator('.work li').allTextContents();
      assert.deepEqual(work.slice(0, 4), WORK);
      assert.deepEqual(work.slice(4).map((line) => line.split(' ')[0]), ['calls', 'gets']);
    }
    // The whole that the agent says at the end is what its pieces made: nothing was put right.
    assert.equal(await page.locator('.turn.complete:not(.in-pieces)').count(), 0);
  }

  async hasEveryNumberOnce() {
    const seqs = await this.page.locator('.strip .mark').evaluateAll((marks) =>
      marks.map((mark) => Number(/** @type {HTMLElement} */ (mark).dataset.seq)),
    );
    assert.deepEqual(seqs, seqs.map((_, index) => index + 1));
    assert.equal(await this.count('missing'), 0);
    assert.equal((await this.count('received')) + (await this.count('replayed')), seqs.length);
  }
}

/** Runs in the page: whatever the status says is noted. */
function noteStatus() {
  addEventListener('DOMContentLoaded', () => {
    const status = document.getElementById('status-words');
    if (!status) return;
    const note = () => /** @type {any} */ (globalThis).noteWords(status.textContent);
    new MutationObserver(note).observe(status, { childList: true, characterData: true, subtree: true });
  });
}
