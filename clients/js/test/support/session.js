// Sessions for tests, and what they saw.

import { WebSocket } from 'ws';

import { Session } from '../../src/index.js';

/** A session that writes down what its listeners get. */
export class Witness {
  events = [];
  gaps = [];
  statuses = [];
  #changed = new Set();

  constructor(url, options = {}) {
    this.session = new Session(url, { WebSocket, ...options });
    this.session.on('event', (event) => this.#note(() => this.events.push(event)));
    this.session.on('gap', (gap) => this.#note(() => this.gaps.push(gap)));
    this.session.on('status', (status) => this.#note(() => this.statuses.push(status)));
  }

  get seqs() {
    return this.events.map((event) => event.seq);
  }

  get states() {
    return this.statuses.map((status) => status.state);
  }

  answers() {
    return this.events.filter((event) => event.event === 'agent.answer').length;
  }

  /** Waits until this is true; looks whenever something was noted. */
  async until(what, condition, patience = 30_000) {
    if (condition(this)) return;
    await new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#changed.delete(look);
        reject(
          new Error(
            `never: ${what}; it saw ${this.events.length} events and ${JSON.stringify(this.statuses.slice(-5))}`,
          ),
        );
      }, patience);
      const look = () => {
        if (!condition(this)) return;
        clearTimeout(timer);
        this.#changed.delete(look);
        resolve();
      };
      this.#changed.add(look);
    });
  }

  #note(write) {
    write();
    for (const look of [...this.#changed]) look();
  }
}

/** 1, 2, 3, … without a hole. */
export const upTo = (last) => Array.from({ length: last }, (_, at) => at + 1);
