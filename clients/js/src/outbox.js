// Messages of the application that the server has not answered for. They are sent again after every
// attachment, in order, under the same ids; the server enters each once.

/**
 * What the application wants to tell the agent; a cancellation has no content.
 * `sent` is what the server may know of it: nothing; it is on its way on this connection; or it was on
 * its way when an earlier one broke, so perhaps it arrived.
 * @typedef {{ message_id: string, content?: unknown, bytes: number, sent: 'no'|'on_its_way'|'unanswered', doubtful: boolean }} Letter
 */

const encoder = new TextEncoder();

export class Outbox {
  /** @type {Letter[]} */
  letters = [];
  bytes = 0;
  /** Nothing is sent before that. @type {number|null} */
  heldUntil = null;
  /** How often in a row the server had no room. */
  holds = 0;

  /** @param {{ messagesInFlight: number, maxUnaccepted: number, maxUnacceptedBytes: number }} options */
  constructor(options) {
    this.options = options;
  }

  /**
   * Keeps a letter; one with an id that is kept already is the same letter. False if there is no room.
   * @param {string} message_id @param {unknown} [content]
   */
  push(message_id, content) {
    if (this.letters.some((letter) => letter.message_id === message_id)) return true;
    const size = content === undefined ? 0 : encoder.encode(JSON.stringify(content)).length;
    const { maxUnaccepted, maxUnacceptedBytes } = this.options;
    const tooLarge = this.letters.length > 0 && this.bytes + size > maxUnacceptedBytes;
    if (tooLarge || this.letters.length >= maxUnaccepted) return false;
    this.bytes += size;
    this.letters.push({ message_id, content, bytes: size, sent: 'no', doubtful: false });
    return true;
  }

  /** The next letter to write to the socket now. @param {number} now */
  next(now) {
    if (this.heldUntil !== null && now < this.heldUntil) return null;
    this.heldUntil = null;
    const onTheirWay = this.letters.filter((letter) => letter.sent === 'on_its_way').length;
    if (onTheirWay >= Math.max(1, this.options.messagesInFlight)) return null;
    const next = this.letters.find((letter) => letter.sent !== 'on_its_way');
    if (next) next.sent = 'on_its_way';
    return next ?? null;
  }

  /** When something is to be sent that could not be before. */
  due() {
    return this.letters.length > 0 ? this.heldUntil : null;
  }

  /** The connection broke: answers to what was on its way will not come. */
  disconnected() {
    for (const letter of this.letters) {
      if (letter.sent !== 'on_its_way') continue;
      letter.sent = 'unanswered';
      letter.doubtful = true;
    }
  }

  /** The server took it. False if it is not (or no longer) kept. @param {string} message_id */
  accepted(message_id) {
    this.holds = 0;
    return this.remove(message_id);
  }

  /** Takes it out. False if it is not (or no longer) kept. @param {string} message_id */
  remove(message_id) {
    const at = this.letters.findIndex((letter) => letter.message_id === message_id);
    if (at < 0) return false;
    this.bytes -= this.letters[at].bytes;
    this.letters.splice(at, 1);
    return true;
  }

  /**
   * The server can't take it now: nothing is sent until then. If it may have entered it all the same, the
   * letter counts as unanswered: sent again under its id it is entered once.
   * @param {string} message_id @param {number} until @param {boolean} mayBeEntered
   */
  hold(message_id, until, mayBeEntered) {
    this.holds += 1;
    this.heldUntil = Math.max(this.heldUntil ?? 0, until);
    const held = this.letters.find((letter) => letter.message_id === message_id);
    if (!held) return;
    held.doubtful ||= mayBeEntered;
    held.sent = held.doubtful ? 'unanswered' : 'no';
  }

  /** The letter that the server's next answer is about: it answers in order. @returns {string|null} */
  oldestOnItsWay() {
    const oldest = this.letters.find((letter) => letter.sent === 'on_its_way');
    return oldest?.message_id ?? null;
  }

  /** Of those on their way the one that most likely went over the limit of a frame. @returns {string|null} */
  largestOnItsWay() {
    /** @type {Letter|null} */
    let largest = null;
    for (const letter of this.letters) {
      const larger = largest === null || letter.bytes >= largest.bytes;
      if (letter.sent === 'on_its_way' && larger) largest = letter;
    }
    return largest?.message_id ?? null;
  }

  /** The session is gone: takes out, and names, the letters that may have reached it. */
  takeUnanswered() {
    this.disconnected();
    const reached = this.letters.filter((letter) => letter.sent === 'unanswered');
    for (const { message_id } of reached) this.remove(message_id);
    return reached.map((letter) => letter.message_id);
  }

  /** Nothing is sent any more: takes out, and names, the rest. */
  takeAll() {
    this.bytes = 0;
    return this.letters.splice(0).map((letter) => letter.message_id);
  }
}
