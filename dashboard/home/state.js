// What the agent has stored as its state, in clear: asked for when somebody opens it, and each time anew.

import * as api from './api.js';
import { h, say } from './dom.js';
import { moment, number, size } from './words.js';

/** Characters of a state that are shown. */
const SHOWN = 64 * 1024;

/** Whether this is what the server answers for an agent that has stored nothing. @param {api.State['state']} state */
const isNew = ({ stage, current_step, memory_snapshot, plan_context, session_id, timestamp, ...own }) =>
  stage === 'new' && current_step === 0 && Object.keys(own).length === 0;

export class StatePanel {
  words = h('p', { class: 'quiet small', role: 'status' });
  text = h('pre', { class: 'detail', tabindex: 0, hidden: true, role: 'group', 'aria-label': 'The state' });
  again = h('button', { type: 'button', class: 'small', onclick: () => this.ask() }, 'Read it again');
  body = h(
    'details',
    { ontoggle: () => this.body.open && this.ask() },
    h('summary', {}, 'What the agent has stored'),
    h('div', { class: 'tools' }, this.words, this.again),
    this.text,
  );
  element = h(
    'section',
    { class: 'card panel state', 'aria-labelledby': 'state-title' },
    h('header', {}, h('h2', { id: 'state-title' }, 'State')),
    this.body,
  );

  /** @param {string} id @param {(error: unknown) => void} failed */
  constructor(id, failed) {
    this.id = id;
    this.failed = failed;
  }

  async ask() {
    try {
      this.show(await api.state(this.id));
    } catch (error) {
      if (!(error instanceof api.Refused) || error.status === 0 || error.isAboutKey) return this.failed(error);
      this.text.hidden = true;
      say(this.words, error.status === 410 ? 'A session that has ended has no state.' : error.message);
    }
  }

  /** @param {api.State} exported */
  show({ state, seq, snapshot_time: taken }) {
    if (seq === 0 && isNew(state)) {
      this.text.hidden = true;
      return say(this.words, 'The agent has stored none yet.');
    }
    const text = JSON.stringify(state, null, 2);
    const cut = text.length > SHOWN ? ` The first ${size(SHOWN)} of ${size(text.length)} are shown.` : '';
    const stored = seq === 0 ? 'Stored before the first event.' : `As of event ${number(seq)}, stored ${moment(taken)}.`;
    say(this.words, stored + cut);
    say(this.text, text.slice(0, SHOWN));
    this.text.hidden = false;
  }
}
