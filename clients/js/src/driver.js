// Between the machine and the world, for as long as this tab has the session: the socket, the timer, the
// line to the application. It does what the machine says, in its order, and decides nothing.

import { Clock } from './clock.js';
import { LONGEST_TIMER } from './limits.js';
import { Socket } from './socket.js';

/** @typedef {import('./machine.js').Machine} Machine */
/** @typedef {import('./machine.js').Input} Input */
/** @typedef {import('./machine.js').Output} Output */
/** @typedef {import('./frames.js').Frame} Frame */
/** What the session does itself. @typedef {Exclude<Output, { type: 'connect'|'close'|'send'|'save'|'event' }>} News */
/**
 * @typedef {object} Equipment
 * @property {import('./socket.js').SocketOptions} dial
 * @property {import('./handover.js').Handover} handover
 * @property {import('./storage.js').Keeper} keeper
 * @property {number} window items that may wait for a slow application
 * @property {(news: News) => void} told
 */

export class Driver {
  #clock = new Clock();
  /** @type {Socket|null} */
  #socket = null;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  #timer;
  #wantsSocket = false;
  #carryingOut = false;
  #stopped = false;
  #equipment;

  /** @param {Machine} machine @param {Equipment} equipment */
  constructor(machine, equipment) {
    this.machine = machine;
    this.#equipment = equipment;
    equipment.handover.onmoved = () => this.#openSocket(); // perhaps there is room again
  }

  /** Something happened. @param {Input} input */
  tell(input) {
    if (this.#stopped) return;
    this.machine.handle(input, this.#clock.now());
    this.#carryOut();
  }

  /** Drops the connection as a broken network would. */
  cut() {
    if (!this.#socket) return;
    this.#dropSocket();
    this.tell({ type: 'closed', code: null, random: random() });
  }

  /** Lets everything go; what was to be saved last is in the machine. */
  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#dropSocket();
    this.machine.handle({ type: 'closed', code: null, random: 0 }, this.#clock.now());
  }

  /** Does everything the machine says; also what comes up meanwhile. */
  #carryOut() {
    if (this.#carryingOut) return;
    this.#carryingOut = true;
    for (let outputs = this.machine.takeOutputs(); outputs.length > 0; outputs = this.machine.takeOutputs()) {
      for (const output of outputs) {
        if (!this.#stopped) this.#do(output);
      }
    }
    this.#carryingOut = false;
    this.#openSocket();
    this.#setTimer();
  }

  /** @param {Output} output */
  #do(output) {
    const { handover, keeper, told } = this.#equipment;
    switch (output.type) {
      case 'connect':
        this.#wantsSocket = true;
        return;
      case 'close':
        this.#dropSocket();
        return this.tell({ type: 'closed', code: null, random: random() });
      case 'send':
        return this.#write(output.frame);
      case 'save':
        return handover.afterwards(() => keeper.save(output.saved));
      case 'event':
        return this.give(output.frame);
      default:
        return told(output);
    }
  }

  /** Hands something to the application. If that is far behind, the connection is let go: the server keeps
   *  what is to come until it has caught up. @param {Frame} frame */
  give(frame) {
    const { handover, window } = this.#equipment;
    handover.give(frame);
    if (handover.length > 2 * window) this.cut();
  }

  /** An ack waits until what it covers was handled and saved; on another socket it would be nonsense.
   *  @param {Frame} frame */
  #write(frame) {
    const { handover, keeper } = this.#equipment;
    const socket = this.#socket;
    if (frame.event !== 'user.ack') return socket?.send(frame);
    handover.afterwards(() => {
      if (this.#socket === socket && (!keeper.failed || frame.metadata.gap_detected)) socket?.send(frame);
    });
  }

  #openSocket() {
    const { dial, handover, window } = this.#equipment;
    if (!this.#wantsSocket || this.#carryingOut || this.#stopped || handover.length > window) return;
    this.#wantsSocket = false;
    this.#socket = new Socket(dial, {
      opened: () => this.tell({ type: 'opened' }),
      frame: (frame) => this.tell({ type: 'frame', frame }),
      closed: ({ code, retryAfter }) => {
        this.#socket = null;
        this.tell({ type: 'closed', code, retry_after_ms: retryAfter, random: random() });
      },
    });
  }

  #dropSocket() {
    this.#wantsSocket = false;
    this.#socket?.drop();
    this.#socket = null;
  }

  #setTimer() {
    clearTimeout(this.#timer);
    const due = this.#stopped ? null : this.machine.nextDeadline();
    if (due === null) return;
    const wait = Math.min(Math.max(0, due - this.#clock.now()), LONGEST_TIMER);
    this.#timer = setTimeout(() => this.tell({ type: 'tick' }), wait);
  }
}

const random = () => crypto.getRandomValues(new Uint32Array(1))[0];
