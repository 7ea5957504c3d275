// The playground: a chat with the agent, and everything a person can do to its connection.
//
// | file | what it does |
// |---|---|
// | `network.js` | the connection, which can be cut and put to sleep |
// | `chat.js` | draws the conversation |
// | `strip.js` | draws the numbers of the events |
// | `words.js` | says how things stand |
// | `sent.js` | remembers what was asked in this browser |

import { LocalStorage, Session } from '/assets/client/index.js';
import { newMessageId } from '/assets/client/letters.js';
import { byId } from '/assets/shared/dom.js';
import { call, getKey, setKey } from '/assets/shared/key.js';

import { Chat } from './chat.js';
import { Network } from './network.js';
import * as sent from './sent.js';
import { sleeper } from './sleep.js';
import { Strip } from './strip.js';
import { NOT_AUTHORISED, statusInWords } from './words.js';

/** @typedef {import('/assets/client/index.js').Status} Status */

/** How long "Connection lost" is shown at least, in milliseconds. */
const LOST_IS_SHOWN = 600;

const question = /** @type {HTMLInputElement} */ (byId('question'));
const cutSwitch = byId('cut');
const network = new Network();
const chat = new Chat(
  byId('log'),
  (id) => sent.allSent().find((one) => one.id === id)?.text,
  (text) => (byId('heard').textContent = text),
);
const strip = new Strip(byId('strip'), (counts) => {
  for (const [name, count] of Object.entries(counts)) byId(name).textContent = String(count);
});
const session = new Session('/ws', {
  storage: new LocalStorage('rejoin-play'),
  fromBeginning: true,
  token: () => getKey(),
  WebSocket: network.WebSocket,
  about: { client_id: 'playground' },
});

network.onarrival = (event) => strip.arrived(event);
session.on('event', (event) => {
  strip.handed(event);
  chat.take(event);
});
session.on('gap', ({ from, to }) =>
  chat.note(
    from === null ? 'What was said before is gone from the server' : `Events ${from} to ${to} are gone from the server`,
  ),
);
session.on('status', onStatus);
session.on('refused', ({ code, message }) => chat.note(`${message} (${code})`));

/** @param {Status} status */
function onStatus(status) {
  if (network.isAsleep) return; // nobody looks
  if (status.state === 'connection_lost') strip.tear();
  if (status.state === 'restoring') chat.rewind();
  if (status.state === 'connected' && status.how === 'created' && !status.draining) beginAnew();
  if (status.state === 'connected') void showQuestions();
  show(status);
}

/** Draws what was asked in this session, here or elsewhere, as far as the server has it. */
async function showQuestions() {
  const id = session.sessionId;
  for (let after = 0, more = true; more && id !== null && id === session.sessionId; ) {
    const answer = await call(`/api/sessions/${id}/messages?after=${after}`).catch(() => null);
    if (!answer?.ok) return; // what was asked in this browser is known without
    const { messages, last_in_seq } = await answer.json();
    for (const { event, message_id, in_seq, content } of messages) {
      if (event === 'user.message') chat.asked(message_id, in_seq, typeof content === 'string' ? content : JSON.stringify(content));
    }
    [after, more] = [last_in_seq, messages.length > 0];
  }
}

/** Until when what is shown stays, and what shows the next then. */
let stays = { until: 0, timer: 0 };

/** That the connection is lost stays to be seen for a moment. @param {Status} status */
function show(status) {
  clearTimeout(stays.timer);
  const left = stays.until - performance.now();
  if (left > 0) {
    stays.timer = setTimeout(() => show(session.status), left);
    return;
  }
  if (status.state === 'connection_lost') stays.until = performance.now() + LOST_IS_SHOWN;
  byId('status').dataset.state = status.state;
  byId('status-words').textContent = statusInWords(status);
  byId('take-over').hidden = !(status.state === 'stopped' && status.reason === 'other_tab');
  showWayOn(status);
  byId('key-form').hidden = !needsKey(status);
  showSession(session.sessionId);
}

/** After the end: in a new session, or in this one again. @param {Status} status */
function showWayOn(status) {
  const over =
    status.state === 'stopped' && !needsKey(status) && !['other_tab', 'refused'].includes(status.reason);
  const gone = status.state === 'stopped' && ['ended', 'lost'].includes(status.reason);
  byId('begin').hidden = !over;
  byId('begin').textContent = gone ? 'Begin a new session' : 'Go on here';
}

/** @param {string|null} id */
function showSession(id) {
  const link = /** @type {HTMLAnchorElement} */ (byId('session-id'));
  link.textContent = id ?? '';
  link.href = `/#/sessions/${id}`;
  byId('session').hidden = id === null;
}

/** A new session has begun: its numbers, and its messages, begin with 1. */
function beginAnew() {
  if (!strip.isEmpty) chat.note('A new session begins here');
  strip.clear();
  chat.clear();
}

/** @param {Status} status */
const needsKey = (status) =>
  status.state === 'stopped' && (status.code === 'UNAUTHORIZED' || status.code === NOT_AUTHORISED);

/** Says it, and goes on trying to, also after a reload. @param {string} id @param {string} text */
async function ask(id, text) {
  chat.say(id, text);
  chat.became(id, 'on its way');
  try {
    const { in_seq } = await session.send(text, { messageId: id });
    sent.accepted(id);
    chat.became(id, '', in_seq);
  } catch (error) {
    if (session.status.state === 'stopped') return; // the next page tries again
    sent.forget(id);
    chat.became(id, `not delivered: ${/** @type {Error} */ (error).message}`, 0);
  }
}

byId('ask').addEventListener('submit', (submitted) => {
  submitted.preventDefault();
  const text = question.value.trim();
  if (!text) return;
  const id = newMessageId();
  sent.keep(id, text);
  void ask(id, text);
  question.value = '';
});

cutSwitch.addEventListener('click', () => {
  const cut = !network.isCut;
  cutSwitch.ariaChecked = String(cut);
  byId('cut-hint').textContent = cut ? 'cut: switch it back when you like' : 'the agent works on without you';
  if (cut) return network.cut();
  network.mend();
  session.wake();
});

/** Kills the agent. @returns {Promise<string>} what came of it */
async function restart() {
  if (session.sessionId === null) return 'This tab has no session whose agent it could restart';
  const answer = await call(`/api/sessions/${session.sessionId}/restart`, { method: 'POST' }).catch(() => null);
  if (answer === null) return 'The server does not answer, so the agent was not restarted';
  if (!answer.ok) return `The server would not restart the agent (${answer.status})`;
  const { restarted } = await answer.json();
  return restarted ? 'The agent was killed; another one goes on' : 'There is no agent at work now';
}

byId('restart').addEventListener('click', async () => chat.note(await restart()));

byId('again').addEventListener('click', () => {
  const metadata = { last_seq: 0, received_count: 0, gap_detected: true };
  network.send({ event: 'user.ack', session_id: session.sessionId ?? '', metadata });
});

const sleep = sleeper({
  slept: () => network.sleep(),
  woke: () => {
    network.wake();
    strip.tear();
    session.wake();
    onStatus(session.status);
  },
});
byId('sleep').addEventListener('click', sleep);

byId('end').addEventListener('click', () => session.end());
byId('take-over').addEventListener('click', () => session.takeOver());
byId('begin').addEventListener('click', () => location.reload());
byId('key-form').addEventListener('submit', (submitted) => {
  submitted.preventDefault();
  setKey(/** @type {HTMLInputElement} */ (byId('key')).value);
  location.reload();
});

for (const { id, text, accepted } of sent.allSent()) if (!accepted) void ask(id, text);
session.connect().catch(() => {}); // its status says why not
