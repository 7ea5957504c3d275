// The React hook. It is the one file with an import that a browser can't resolve by itself (`react`), and
// the others do not import it.

import { useEffect, useRef, useState } from 'react';

import { Session } from './session.js';

/** @typedef {import('./session.js').SessionOptions} SessionOptions */
/** @typedef {import('./session.js').Status} Status */
/** @typedef {import('./frames.js').Frame} Frame */

/**
 * A session for as long as the component is there. `events` are those since then, in order and each once;
 * with `fromBeginning` (the default here, as a component begins with nothing) also those before.
 *
 * Another `url` is another session. `options` are looked at once; change the component's `key` to begin
 * anew with others.
 *
 * @param {string} url @param {SessionOptions} [options]
 * @returns {{ status: Status, events: Frame[], session: Session|null,
 *   send: (content: unknown) => Promise<import('./session.js').Accepted>, cancel: () => Promise<unknown> }}
 */
export function useRejoin(url, options = {}) {
  const [session, setSession] = useState(/** @type {Session|null} */ (null));
  const [status, setStatus] = useState(/** @type {Status} */ ({ state: 'connecting' }));
  const [events, setEvents] = useState(/** @type {Frame[]} */ ([]));
  const first = useRef(options);

  useEffect(() => {
    const begun = new Session(url, { fromBeginning: true, ...first.current });
    begun.on('status', (now) => {
      if (now.state === 'connected' && now.how === 'created') setEvents([]);
      setStatus(now);
    });
    begun.on('event', (event) => setEvents((before) => [...before, event]));
    setEvents([]);
    setSession(begun);
    void begun.connect();
    return () => void begun.close();
  }, [url]);

  const ready = () => session ?? fail();
  return {
    status,
    events,
    session,
    send: (content) => ready().send(content),
    cancel: () => ready().cancel(),
  };
}

/** @returns {never} */
function fail() {
  throw new Error('the component is not there yet');
}
