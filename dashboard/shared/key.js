// The key that a person gave to this tab. It is gone with the tab, and other tabs do not have it.

const NAME = 'rejoin-key';

/** @returns {string|null} */
export const getKey = () => sessionStorage.getItem(NAME);

/** @param {string|null} key */
export function setKey(key) {
  if (key) sessionStorage.setItem(NAME, key);
  else sessionStorage.removeItem(NAME);
}

/** Calls the HTTP API of this server as whoever gave the key. @param {string} path @param {RequestInit} [init] */
export function call(path, init = {}) {
  const key = getKey();
  const headers = new Headers(init.headers);
  if (key) headers.set('authorization', `Bearer ${key}`);
  return fetch(path, { ...init, headers });
}
