// One owner among the tabs that share a session. The owner has the connection; the others wait their
// turn and are told. A tab can ask to take over, and gets the session at once.
//
// Web Locks do the queueing where they are (secure pages): a tab that dies lets go by itself. Elsewhere
// tabs ask each other over a BroadcastChannel. Where neither is, or nothing is shared, every tab is an
// owner, and the server lets the latest win: the others are told `superseded`.

import { TAB_ANSWER, TAB_CHECK } from './limits.js';

/**
 * Whose turn it is, of one tab.
 * @typedef {object} Turn
 * @property {() => void} takeOver asks the owner to let go
 * @property {() => void} leave lets go, or waits no more
 */
/**
 * @typedef {object} TurnCallbacks
 * @property {() => void} owned this tab has the session now
 * @property {() => void|Promise<void>} waiting another tab has it; called again whenever it was taken away
 */
/** @typedef {{ locks?: LockManager, BroadcastChannel?: typeof BroadcastChannel }} Means */

/**
 * Queues for the session named `key`.
 * @param {string|undefined} key @param {TurnCallbacks} callbacks @param {Means} [means] @returns {Turn}
 */
export function queue(key, callbacks, means = meansOfThisTab()) {
  const name = `rejoin:${key}`;
  if (key !== undefined && means.BroadcastChannel) {
    const channel = new means.BroadcastChannel(name);
    if (means.locks) return queueByLocks(name, channel, means.locks, callbacks);
    return queueByAsking(channel, callbacks);
  }
  queueMicrotask(callbacks.owned);
  return { takeOver() {}, leave() {} };
}

/** @returns {Means} */
function meansOfThisTab() {
  const { navigator, document, BroadcastChannel } = globalThis;
  return document === undefined ? {} : { locks: navigator?.locks, BroadcastChannel };
}

/**
 * Whoever takes over asks first, so that the owner can save where it is, and then steals the lock: an
 * owner that the browser has frozen does not answer.
 * @param {string} name @param {BroadcastChannel} channel @param {LockManager} locks
 * @param {TurnCallbacks} callbacks @returns {Turn}
 */
function queueByLocks(name, channel, locks, { owned, waiting }) {
  let left = false;
  let told = false;
  /** Lets go of the lock; null while this tab does not have it. @type {(() => void)|null} */
  let letGo = null;
  /** This tab has asked to take over. */
  let takes = false;
  let place = new AbortController();
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  let timer;

  /** Who has left by the time the lock comes lets it go at once. @returns {Promise<void>|undefined} */
  const hold = () => {
    if (left) return;
    told = takes = false;
    owned();
    return new Promise((resolve) => (letGo = resolve));
  };
  /** A lock that was stolen is queued for again. @param {LockOptions} options */
  const request = async (options) => {
    try {
      const answer = await locks.request(name, options, (lock) => (lock ? hold() : 'taken'));
      if (answer !== 'taken') return;
    } catch {
      if (options.signal?.aborted) return;
      letGo = null;
    }
    await wait();
  };
  const wait = async () => {
    if (left) return;
    if (!told) await waiting();
    told = true;
    line();
  };
  const line = () => {
    if (left) return;
    place = new AbortController();
    void request({ signal: place.signal });
  };
  const steal = () => {
    clearTimeout(timer);
    if (left || letGo !== null) return;
    place.abort();
    void request({ steal: true });
  };
  const yieldToAnother = async () => {
    told = true;
    await waiting();
    channel.postMessage('yours');
    letGo?.();
    letGo = null;
    timer = setTimeout(line, TAB_ANSWER);
  };
  channel.onmessage = ({ data: word }) => {
    if (word === 'take' && letGo !== null && !told) void yieldToAnother();
    if (word === 'yours' && takes) steal();
  };
  void request({ ifAvailable: true });
  return {
    takeOver() {
      if (letGo !== null) return;
      takes = true;
      channel.postMessage('take');
      clearTimeout(timer);
      timer = setTimeout(steal, TAB_ANSWER);
    },
    leave() {
      left = true;
      clearTimeout(timer);
      place.abort();
      channel.close();
      letGo?.();
    },
  };
}

/** @param {BroadcastChannel} channel @param {TurnCallbacks} callbacks @returns {Turn} */
function queueByAsking(channel, { owned, waiting }) {
  const me = Math.random();
  let state = /** @type {'asking'|'waiting'|'owner'} */ ('asking');
  let told = false;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  let timer;

  const say = (/** @type {string} */ word, to = 0) => channel.postMessage({ word, from: me, to });
  const ask = () => {
    clearTimeout(timer);
    state = 'asking';
    say('who');
    timer = setTimeout(become, TAB_ANSWER);
  };
  const become = () => {
    clearTimeout(timer);
    state = 'owner';
    told = false;
    say('mine');
    owned();
  };
  const wait = async () => {
    clearTimeout(timer);
    state = 'waiting';
    // A tab that died says nothing: the silence is noticed by asking again.
    timer = setTimeout(ask, TAB_CHECK + TAB_ANSWER * me);
    if (told) return;
    told = true;
    await waiting();
  };
  /** @type {Record<string, (from: number, to: number) => unknown>} */
  const on = {
    // Of two that ask, the smaller number is first.
    who: (from) => (state === 'owner' || (state === 'asking' && me < from)) && say('mine', from),
    mine: (from, to) => (to === me || (to === 0 && (state !== 'owner' || from < me))) && wait(),
    take: async (from) => {
      if (state !== 'owner') return;
      await wait();
      say('yours', from);
    },
    yours: (_, to) => to === me && become(),
    free: () => state === 'waiting' && ask(),
  };
  channel.onmessage = ({ data }) => on[data.word]?.(data.from, data.to);
  ask();
  return {
    takeOver: () => say('take'),
    leave() {
      clearTimeout(timer);
      if (state === 'owner') say('free');
      state = 'waiting';
      channel.close();
    },
  };
}
