// "Sleep": what a shut laptop does to a page, for as long as a dialog is open.

import { byId } from '/assets/shared/dom.js';

const SECONDS = 90;

/**
 * Prepares the dialog; the function that it returns falls asleep.
 * @param {{ slept: () => void, woke: () => void }} callbacks
 */
export function sleeper({ slept, woke }) {
  const dialog = /** @type {HTMLDialogElement} */ (byId('asleep'));
  const countdown = byId('countdown');
  /** @type {ReturnType<typeof setInterval>|undefined} */
  let timer;
  dialog.addEventListener('close', () => {
    clearInterval(timer);
    woke();
  });
  byId('wake').addEventListener('click', () => dialog.close());

  return () => {
    const until = Date.now() + SECONDS * 1000;
    const show = () => {
      const left = Math.ceil((until - Date.now()) / 1000);
      countdown.textContent = `${Math.max(0, left)} s`;
      if (left <= 0) dialog.close();
    };
    show();
    timer = setInterval(show, 250);
    slept();
    dialog.showModal();
  };
}
