// Asking again and again, as long as somebody looks: not in a tab that is hidden, and less often if the answer
// takes its time, so that a page never becomes a burden to a server that is slow already.

/** An answer that took long is asked for again after this many times as long. */
const PATIENCE = 10;

/** How long after a failure at least. */
const AFTER_FAILURE = 3000;

/**
 * @param {() => Promise<void>} ask
 * @param {number} every milliseconds
 * @param {(error: unknown) => void} failed is told why; asking goes on
 * @returns {{ now: () => void, stop: () => void }} asks at once; stops
 */
export function poll(ask, every, failed) {
  let timer = 0;
  let asking = false;
  let again = false;
  let stopped = false;

  const wait = (/** @type {number} */ time) => {
    clearTimeout(timer);
    if (!stopped) timer = setTimeout(run, time);
  };

  const run = async () => {
    if (stopped || document.hidden) return;
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    const began = performance.now();
    let pause = every;
    try {
      await ask();
      pause = Math.max(every, (performance.now() - began) * PATIENCE);
    } catch (error) {
      pause = Math.max(every, AFTER_FAILURE);
      if (!stopped) failed(error);
    }
    asking = false;
    wait(again ? 0 : pause);
    again = false;
  };

  const shown = () => void run();
  document.addEventListener('visibilitychange', shown);
  void run();
  return {
    now: () => void run(),
    stop: () => {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', shown);
    },
  };
}
