// What a session could not do, and why.

/** Why a message was not, or may not have been, accepted; or why something else did not work. */
export class SessionError extends Error {
  /** @param {string} reason @param {string|number} [code] */
  constructor(reason, code) {
    super(SENTENCES[reason] ?? `the server refused it (${code})`);
    this.name = 'SessionError';
    this.reason = reason;
    this.code = code;
  }
}

/** @type {Record<string, string>} */
const SENTENCES = {
  not_sent: 'it was never sent, and there is no session to send it to',
  outcome_unknown: 'it was sent to a session that is gone; the agent may have acted on it',
  outbox_full: 'too many messages wait already',
  stopped: 'the session has stopped',
  other_tab: 'another tab has the session',
};
