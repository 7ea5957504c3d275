// The dashboard: who is looking, which of its views is shown, and what is said when the server does not answer.

import { byId } from '/assets/shared/dom.js';
import { setKey } from '/assets/shared/key.js';

import * as api from './api.js';
import { h, say } from './dom.js';
import { showOverview } from './overview.js';
import { showSession } from './session.js';
import { showSessions } from './sessions.js';
import { clock } from './words.js';

/**
 * What views tell the page they are in.
 *
 * @typedef {{ failed: (error: unknown) => void, works: () => void }} Scene
 */

const place = byId('view');
const tabs = byId('tabs');
const trouble = byId('trouble');
const who = byId('who');

/** Ends what is shown. */
let close = () => {};

/** @type {Scene} */
const scene = {
  failed(error) {
    if (error instanceof api.Refused && error.isAboutKey)
      return askForKey('The server does not take this key any more.');
    say(
      trouble,
      error instanceof api.Refused ? `${error.message} Trying again …` : `This page has a fault: ${error}`,
    );
    trouble.hidden = false;
    if (!(error instanceof api.Refused)) throw error;
  },
  works() {
    trouble.hidden = true;
  },
};

/** Finds out who is looking, and shows what was asked for. @param {boolean} [given] whether a key was just given */
async function begin(given = false) {
  let overview;
  try {
    overview = await api.overview();
  } catch (error) {
    if (error instanceof api.Refused && error.isAboutKey) {
      return askForKey(
        given ? 'The server does not know this key.' : 'The server does not take this key any more.',
      );
    }
    scene.failed(error);
    if (error instanceof api.Refused && error.status !== 403) setTimeout(begin, 3000);
    else if (error instanceof api.Refused) say(trouble, error.message);
    return;
  }
  scene.works();
  if (!overview.caller) return askForKey('');
  clock(overview.now);
  greet(overview.authentication ? overview.caller : null);
  route();
}

/** @param {{ principal: string, admin: boolean }|null} caller */
function greet(caller) {
  tabs.hidden = false;
  who.hidden = caller === null;
  if (!caller) return;
  const leave = h('button', { type: 'button', class: 'plain small', onclick: () => askForKey('') }, 'Forget key');
  who.replaceChildren(
    h('span', { class: 'quiet small' }, `${caller.principal}${caller.admin ? ' (admin)' : ''}`),
    leave,
  );
}

/** @param {string} problem */
function askForKey(problem) {
  setKey(null);
  close();
  close = () => {};
  [tabs.hidden, who.hidden, trouble.hidden] = [true, true, true];
  const input = h('input', {
    id: 'key',
    type: 'password',
    required: true,
    autocomplete: 'off',
    spellcheck: false,
    'aria-describedby': problem ? 'problem about' : 'about',
  });
  const form = h(
    'form',
    { class: 'card ask', onsubmit: (/** @type {SubmitEvent} */ event) => enter(event, input) },
    h('h1', {}, 'Who is looking?'),
    problem ? h('p', { class: 'note bad', id: 'problem', role: 'alert' }, problem) : null,
    h('label', { for: 'key' }, 'API key or token'),
    input,
    h('p', { class: 'quiet small', id: 'about' }, 'It is kept for this tab only, and goes to this server only.'),
    h('button', { class: 'primary', type: 'submit' }, 'Look'),
  );
  place.replaceChildren(form);
  input.focus();
}

/** @param {SubmitEvent} event @param {HTMLInputElement} input */
function enter(event, input) {
  event.preventDefault();
  const text = input.value.trim();
  if (!/^[!-~]+$/.test(text)) return askForKey('A key consists of printable ASCII characters without spaces.');
  setKey(text);
  void begin(true);
}

/** Shows what the address asks for. */
function route() {
  close();
  place.replaceChildren();
  trouble.hidden = true;
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const [name, part] = path.split('/');
  const id = part && decoded(part);
  if (name === 'sessions' && id) close = showSession(place, scene, id);
  else if (name === 'sessions') close = showSessions(place, scene, new URLSearchParams(query));
  else close = showOverview(place, scene);
  for (const tab of tabs.querySelectorAll('a')) {
    const here = tab.getAttribute('href') === (name === 'sessions' ? '#/sessions' : '#/');
    if (here) tab.setAttribute('aria-current', 'page');
    else tab.removeAttribute('aria-current');
  }
  document.title = `${id || (name === 'sessions' ? 'Sessions' : 'Overview')} · Rejoin`;
}

/** Addresses are typed by people, too. @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

addEventListener('hashchange', () => {
  const ours = location.hash === '' || location.hash.startsWith('#/'); // the link past the bar is not
  if (tabs.hidden || !ours) return;
  route();
  place.focus({ preventScroll: true }); // whoever goes on with the keyboard begins here
  scrollTo(0, 0);
});
void begin();
