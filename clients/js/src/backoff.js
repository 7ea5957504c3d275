// When to try again: longer each time, never all clients at once, never earlier than the server asks.

import { BACKOFF, BACKOFF_STEPS, MAX_ATTEMPTS } from './limits.js';

/** How often it went wrong since the last attachment, and how long to wait because of it. */
export class Backoff {
  steps = BACKOFF;
  maxAttempts = MAX_ATTEMPTS;
  failures = 0;
  refusals = 0;

  /** The server says how it wants clients to wait. @param {number[]} steps @param {number} maxAttempts */
  configure(steps, maxAttempts) {
    if (steps.length > 0) this.steps = steps.slice(0, BACKOFF_STEPS);
    this.maxAttempts = maxAttempts;
  }

  /** An attachment: all is well. */
  reset() {
    this.failures = 0;
    this.refusals = 0;
  }

  /**
   * The server refused to attach this client. Only this counts towards the end: a server that can't be
   * reached, or closes with "come back", is tried for ever. True when it is enough.
   */
  refused() {
    this.refusals += 1;
    return this.refusals >= this.maxAttempts;
  }

  /**
   * An attempt came to nothing: how long to wait before the next, and the how-manieth that is.
   *
   * The jitter is full, from nothing up to the step: after a crash of the server its clients come back
   * spread over the whole step. What the server asked for is waited in any case, with the jitter on
   * top, for it told all of them the same.
   *
   * @param {number|null} retryAfter
   * @param {number} random 32 random bits
   */
  next(retryAfter, random) {
    const jitter = Math.floor((this.step(this.failures) * random) / 2 ** 32);
    this.failures += 1;
    return { attempt: this.failures, delay: (retryAfter ?? 0) + jitter };
  }

  /** The step after so many failures; the last one stays. @param {number} failures */
  step(failures) {
    return this.steps[Math.min(failures, this.steps.length - 1)];
  }
}
