// An application with one session: it sends, it listens, and it writes down what its listener got. Now and
// then its program ends in an orderly way and is started again on what was kept.

import { WebSocket } from 'ws';

import { MemoryStorage, Session } from '../../src/index.js';

const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

export class Visitor {
  events = [];
  surprises = [];
  accepted = [];
  sessionId = null;
  attached = 0;
  #storage = new MemoryStorage();
  #session = null;
  #restarts;
  #finishing = false;
  #gotLast = () => {};

  /** @param {string} url @param {boolean} restarts whether its program ends and starts again now and then */
  constructor(url, restarts) {
    this.url = url;
    this.#restarts = restarts;
  }

  /** Lives until the answer to the last message is here. */
  async run() {
    const last = new Promise((resolve) => (this.#gotLast = resolve));
    this.#start();
    for (let number = 1; !this.#finishing; number += 1) {
      await sleep(Math.random() * 4_000);
      if (this.#finishing) break;
      await this.#say({ burst: 3 + Math.floor(Math.random() * 6), last: false }, number);
    }
    await this.#say({ burst: 5, last: true }, 'last');
    await last;
    await this.#session.close();
  }

  finish() {
    this.#finishing = true;
  }

  /** Sends, in as many lives of the program as it takes, always under the same id. */
  async #say(content, number) {
    const messageId = `m-${number}`;
    for (;;) {
      const ends = this.#restarts && Math.random() < 0.3;
      const sent = this.#session.send(content, { messageId }).catch((error) => error);
      const answer = await (ends ? Promise.race([sent, sleep(Math.random() * 200)]) : sent);
      if (answer?.in_seq) return void this.accepted.push(answer);
      if (answer) return void this.surprises.push(`${messageId}: ${answer.message}`);
      await this.#session.close();
      this.#start();
    }
  }

  #start() {
    const session = new Session(this.url, {
      WebSocket,
      storage: this.#storage,
      messagesInFlight: 4,
      connectTimeout: 4_000,
    });
    this.#session = session;
    session.on('event', (event) => {
      this.events.push(event);
      if (event.event === 'agent.answer' && event.content.last) this.#gotLast();
    });
    session.on('gap', (gap) => this.surprises.push(JSON.stringify(gap)));
    session.on('error', (error) => this.surprises.push(error.message));
    session.on('status', (status) => this.#onStatus(status));
    void session.connect();
  }

  #onStatus(status) {
    if (
      ['restoring', 'expired'].includes(status.state) ||
      (status.state === 'stopped' && status.reason !== 'left')
    ) {
      this.surprises.push(JSON.stringify(status));
    }
    if (status.state !== 'connected' || status.caught_up !== (status.how === 'created')) return;
    this.attached += 1;
    if (this.sessionId !== null && this.sessionId !== status.session_id)
      this.surprises.push('attached to another session');
    this.sessionId = status.session_id;
  }
}
