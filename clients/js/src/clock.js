// The client's time line: the wall clock, which goes on while the machine sleeps, but never back.

export class Clock {
  #read;
  #offset = 0;
  #last = 0;

  /** @param {() => number} [read] milliseconds of the wall clock */
  constructor(read = Date.now) {
    this.#read = read;
  }

  /** Now. If somebody sets the clock back, the time goes on from where it was. */
  now() {
    const read = this.#read() + this.#offset;
    if (read < this.#last) this.#offset += this.#last - read;
    this.#last = Math.max(read, this.#last);
    return this.#last;
  }
}
