// Between the machine and the application: items are handed over in order, one after the other, and what
// must wait until they were handled (saving a position, acking it) waits in the same line. So a program
// that dies while it works on an event gets that event again, and nothing is acked that was not handled.
//
// An item is handled when every listener has returned (or its promise is settled) and every iteration has
// asked for the next. With nobody there to take it, it waits.

/** @typedef {import('./frames.js').Frame} Frame */
/** @typedef {import('./machine.js').Saved} Saved */
/** @typedef {(frame: Frame) => unknown} Taker */
/** @typedef {{ frame: Frame } | { task: () => unknown }} Entry */

export class Handover {
  /** @type {Entry[]} */
  #line = [];
  #busy = false;
  /** Goes up when what is under way is not waited for any more. */
  #turn = 0;
  #ended = false;
  /** @type {Set<Taker>} */
  #takers = new Set();
  /** @type {Set<Iteration>} */
  #iterations = new Set();
  /** The seq of the last event that was handled. @type {number|null} */
  handledSeq = null;
  /** Called when an entry leaves the line. */
  onmoved = () => {};

  /** How much waits. */
  get length() {
    return this.#line.length;
  }

  /** @param {Frame} frame */
  give(frame) {
    this.#line.push({ frame });
    this.#pump();
  }

  /** Does something once everything before it was handled. @param {() => unknown} task */
  afterwards(task) {
    this.#line.push({ task });
    this.#pump();
  }

  /** What waits is forgotten: it comes again, from the server. The item under way counts as handled.
   *  @returns {Frame[]} the items that were forgotten */
  clear() {
    if (this.#busy) {
      this.#turn += 1;
      this.#next();
    }
    return this.#line.splice(0).flatMap((entry) => ('frame' in entry ? [entry.frame] : []));
  }

  /** Nothing comes any more: iterations end when they have taken what is there. */
  end() {
    this.#ended = true;
    this.#pump();
  }

  /** @param {Taker} taker */
  addTaker(taker) {
    this.#takers.add(taker);
    this.#pump();
    return () => void this.#takers.delete(taker);
  }

  /** @returns {AsyncIterableIterator<Frame>} */
  iterate() {
    const iteration = new Iteration((gone) => this.#iterations.delete(gone));
    this.#iterations.add(iteration);
    queueMicrotask(() => this.#pump());
    return iteration;
  }

  #pump() {
    while (!this.#busy && this.#line.length > 0) {
      const done = this.#doNext(this.#line[0]);
      if (done === null) return;
      this.#busy = true;
      if (done === undefined) this.#next();
      else void this.#afterTurn(done, this.#turn);
    }
    if (this.#ended && this.#line.length === 0) for (const iteration of this.#iterations) iteration.end();
  }

  /** @param {Promise<unknown>} done @param {number} turn */
  async #afterTurn(done, turn) {
    await done;
    if (turn !== this.#turn) return; // it was not waited for after all
    this.#next();
    this.#pump();
  }

  #next() {
    this.#busy = false;
    const entry = this.#line.shift();
    if (entry && 'frame' in entry)
      this.handledSeq = entry.frame.seq ?? entry.frame.metadata?.to ?? this.handledSeq;
    this.onmoved();
  }

  /** Nothing if it is done, a promise if it takes a while, null if nobody is there to take it.
   *  @param {Entry} entry @returns {undefined|null|Promise<unknown>} */
  #doNext(entry) {
    if ('task' in entry) return settled([attempt(entry.task)]);
    const { frame } = entry;
    if (this.#takers.size === 0 && this.#iterations.size === 0) return null;
    const listened = [...this.#takers].map((taker) => attempt(() => taker(frame)));
    return settled([...listened, ...[...this.#iterations].map((iteration) => iteration.take(frame))]);
  }
}

/** What a `for await` loop holds on to. @implements {AsyncIterableIterator<Frame>} */
class Iteration {
  /** The item that the loop works on, and whoever wants to know when it is done. @type {(() => void)|null} */
  #handled = null;
  /** @type {((result: IteratorResult<Frame>) => void)|null} */
  #wanted = null;
  /** An item that came before it was wanted. @type {Frame|null} */
  #early = null;
  #done = false;
  #gone;

  /** @param {(gone: Iteration) => void} gone */
  constructor(gone) {
    this.#gone = gone;
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** @param {Frame} frame @returns {Promise<void>} */
  take(frame) {
    if (this.#wanted) this.#wanted({ value: frame, done: false });
    else this.#early = frame;
    this.#wanted = null;
    return new Promise((resolve) => (this.#handled = resolve));
  }

  /** @returns {Promise<IteratorResult<Frame>>} */
  next() {
    const early = this.#early;
    if (early) {
      this.#early = null;
      return Promise.resolve({ value: early, done: false });
    }
    if (this.#done) return Promise.resolve({ value: undefined, done: true });
    const wanted = new Promise(
      (/** @type {(result: IteratorResult<Frame>) => void} */ resolve) => (this.#wanted = resolve),
    );
    this.#settle();
    return wanted;
  }

  /** The loop was left: the item it had counts as handled. @returns {Promise<IteratorResult<Frame>>} */
  return() {
    this.end();
    this.#settle();
    return Promise.resolve({ value: undefined, done: true });
  }

  end() {
    this.#done = true;
    this.#gone(this);
    this.#wanted?.({ value: undefined, done: true });
    this.#wanted = null;
  }

  #settle() {
    this.#handled?.();
    this.#handled = null;
  }
}

/** Calls it; what it throws is reported like an error in any event listener, and stops nothing else.
 *  @param {() => unknown} call @returns {unknown} */
export function attempt(call) {
  try {
    const result = call();
    return isPromise(result) ? result.then(undefined, report) : undefined;
  } catch (error) {
    report(error);
    return undefined;
  }
}

/** @param {unknown} error */
function report(error) {
  queueMicrotask(() => {
    throw error;
  });
}

/** @param {unknown[]} results @returns {undefined|Promise<unknown>} */
function settled(results) {
  const promises = results.filter(isPromise);
  return promises.length > 0 ? Promise.all(promises) : undefined;
}

/** @param {any} value @returns {value is Promise<unknown>} */
const isPromise = (value) => typeof value?.then === 'function';

/**
 * What to keep of a session that is left while its application still has something to handle: up to there.
 * Nothing new, if nobody can say where that is.
 * @param {Saved} saved @param {Frame[]} unhandled @param {number|null} handledSeq @returns {Saved|null}
 */
export function upTo(saved, unhandled, handledSeq) {
  if (unhandled.length === 0 || !saved.position) return saved;
  const seq = unhandled[0].seq === undefined ? handledSeq : unhandled[0].seq - 1;
  const sameLog = unhandled.every((frame) => frame.metadata?.reason !== 'position_unknown');
  return sameLog && seq !== null ? { ...saved, position: { ...saved.position, seq } } : null;
}
