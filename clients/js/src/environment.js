// What the machine around us tells: that it is online or offline, that the page is shown or goes away,
// and, by a clock that jumped, that it was asleep.

import { SLEEP_CHECK, SLEEP_SLACK } from './limits.js';

/**
 * Watches until the function it returns is called.
 * @param {{ wake: () => void, offline: () => void, hidden: () => void }} callbacks
 * `wake`: something may work again, or have broken unnoticed; `offline`: nothing works any more;
 * `hidden`: this may be the last that is heard of the page
 * @returns {() => void}
 */
export function watch({ wake, offline, hidden }) {
  const { window, document } = globalThis;
  const stopped = new AbortController();
  const { signal } = stopped;
  window?.addEventListener('online', wake, { signal });
  window?.addEventListener('offline', offline, { signal });
  window?.addEventListener('pageshow', wake, { signal });
  window?.addEventListener('pagehide', hidden, { signal });
  document?.addEventListener('resume', wake, { signal });
  document?.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && wake(), {
    signal,
  });

  let looked = Date.now();
  const timer = setInterval(() => {
    const slept = Date.now() - looked > SLEEP_CHECK + SLEEP_SLACK;
    looked = Date.now();
    if (slept) wake();
  }, SLEEP_CHECK);
  /** @type {any} */ (timer).unref?.();
  return () => {
    stopped.abort();
    clearInterval(timer);
  };
}
