// The conversation, drawn from the events of the out log: what an event says is added where it belongs, and
// nothing is ever drawn twice. Which message an event belongs to is in its metadata, where the server puts it.

import { make } from '/assets/shared/dom.js';

/** @typedef {import('/assets/client/index.js').Frame} Frame */

/** How near to its end the log must be to follow it. */
const NEAR = 80;

export class Chat {
  /** By message. @type {Map<string, Turn>} */
  #turns = new Map();
  /** Of messages, by their place in the in log. @type {Map<number, string>} */
  #names = new Map();
  #log;
  #textOf;
  #heard;
  /** Whether the end of the log is followed in this frame. */
  #following = false;

  /**
   * @param {HTMLElement} log
   * @param {(id: string) => string|undefined} textOf what was said in this browser under an id
   * @param {(text: string) => void} heard what is read out to who can't see it
   */
  constructor(log, textOf, heard) {
    this.#log = log;
    this.#textOf = textOf;
    this.#heard = heard;
  }

  /** Another session, which counts its messages from 1. Those that were named keep their names. */
  clear() {
    this.#settle();
    this.#names.clear();
    for (const id of [...this.#turns.keys()]) if (/^#|^unasked$/.test(id)) this.#turns.delete(id);
  }

  /** The session was restored from a saved state, and that may be older than what is drawn: then the agent
   *  does again what it did since, under new numbers. Its events say which step they are. */
  rewind() {
    this.#settle();
    for (const turn of this.#turns.values()) turn.rewind();
  }

  /** The person says something. @param {string} id @param {string} text */
  say(id, text) {
    this.#follow(() => this.#turn(id, Infinity, () => text));
  }

  /** The server has this message: it was said here before, or elsewhere.
   *  @param {string|null} id @param {number} place in the in log @param {string} text */
  asked(id, place, text) {
    const name = this.#turns.has(`#${place}`) ? `#${place}` : (id ?? `#${place}`);
    this.#names.set(place, name);
    this.#follow(() => this.#turn(name, place, () => text).ask(text));
  }

  /** What became of it. @param {string} id @param {string} words @param {number} [place] in the in log, if it has one */
  became(id, words, place = Infinity) {
    this.#turns.get(id)?.became(words, place);
  }

  /** Something happened that is not part of what was said. @param {string} words */
  note(words) {
    this.#follow(() => this.#log.append(make('li', { className: 'happened small' }, words)));
  }

  /** The agent says something. @param {Frame} event */
  take(event) {
    const { message_id, in_seq } = event.metadata ?? {};
    const id = message_id ?? this.#names.get(in_seq) ?? (in_seq === undefined ? 'unasked' : `#${in_seq}`);
    this.#follow(() => this.#turn(id, in_seq ?? Infinity, () => this.#textOf(id)).take(event));
    if (event.event === 'agent.final_answer') this.#heard(`The answer is complete: ${this.#turns.get(id)?.answer}`);
  }

  /** A new one stands before those that the server got after it, or has not yet: a page that was reloaded draws
   *  what it still has to send before it is told what was said earlier.
   *  @param {string} id @param {number} place in the in log @param {() => string|undefined} textOf */
  #turn(id, place, textOf) {
    let turn = this.#turns.get(id);
    if (!turn) {
      turn = new Turn(place, textOf());
      const next = [...this.#turns.values()].find((one) => one.place > place);
      this.#turns.set(id, turn);
      this.#log.insertBefore(turn.element, next?.element ?? null);
    }
    return turn;
  }

  /** Places in the in log begin anew: what has one stays where it is. */
  #settle() {
    for (const turn of this.#turns.values()) if (turn.place !== Infinity) turn.place = 0;
  }

  /** Draws, and stays at the end if the reader was there. The log is measured once a frame: a conversation that is
   *  drawn again has tens of thousands of events. @param {() => void} draw */
  #follow(draw) {
    const log = this.#log;
    if (!this.#following) {
      const near = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR;
      this.#following = true;
      requestAnimationFrame(() => {
        this.#following = false;
        if (near) log.scrollTop = log.scrollHeight;
      });
    }
    draw();
  }
}

/** A question and what the agent did about it. */
class Turn {
  #question = make('p', {});
  #state = make('span', { className: 'state small' });
  #work = make('ul', { className: 'work small' });
  #answer = make('p', { className: 'answer', hidden: true });
  #end = make('p', { className: 'end small quiet', hidden: true });
  #pieces = 0;
  /** The first step that is drawn, the last, and how far steps that come again are known. */
  #steps = { first: 0, drawn: 0, known: 0 };

  /** @param {number} place @param {string} [text] */
  constructor(place, text) {
    this.place = place;
    this.#question.textContent = text ?? '(asked elsewhere)';
    this.element = make(
      'li',
      { className: 'turn' },
      make('div', { className: 'question' }, this.#question, this.#state),
      make('div', { className: 'reply' }, this.#work, this.#answer, this.#end),
    );
  }

  /** What the agent has answered so far. */
  get answer() {
    return this.#answer.textContent;
  }

  /** @param {string} text */
  ask(text) {
    this.#question.textContent = text;
  }

  /** @param {string} words @param {number} place */
  became(words, place) {
    this.#state.textContent = words;
    this.place = Math.min(this.place, place);
  }

  rewind() {
    this.#steps.known = this.#steps.drawn;
  }

  /** @param {Frame} event */
  take({ event, content, metadata }) {
    if (metadata?.step <= this.#steps.known) return;
    this.#steps.drawn = metadata?.step ?? 0;
    this.#steps.first ||= this.#steps.drawn;
    switch (event) {
      case 'agent.plan':
        return this.#did('plan', (content?.steps ?? [content]).join(' → '));
      case 'agent.thinking':
        return this.#did('thinks', asText(content));
      case 'agent.tool_call':
        return this.#did('calls', `${content?.tool}(${asText(content?.arguments ?? {})})`);
      case 'agent.tool_result':
        return this.#did('gets', asText(content?.result ?? content));
      case 'agent.answer_delta':
        return this.#write(asText(content));
      case 'agent.final_answer':
        return this.#finish(content === undefined || content === null ? '' : asText(content));
      case 'agent.cancelled':
        return this.#over(asText(content));
      default:
        return this.#did(event.replace(/^agent\./, ''), asText(content));
    }
  }

  /** @param {string} what @param {string} text */
  #did(what, text) {
    this.#work.append(make('li', {}, make('span', { className: 'verb' }, what), ' ', text));
  }

  /** @param {string} piece */
  #write(piece) {
    this.#pieces += 1;
    this.#answer.hidden = false;
    this.#answer.classList.add('writing');
    this.#answer.append(piece);
  }

  /** The agent says the whole of it, which stands for the pieces that came before: a page that came late has only some
   *  of them. If it says nothing, the pieces are the answer. @param {string} whole */
  #finish(whole) {
    if (this.#pieces === 0) this.#write(whole);
    const same = whole === '' || this.#answer.textContent === whole;
    if (!same) this.#answer.textContent = whole;
    const pieces = this.#pieces === 1 ? 'piece' : 'pieces';
    this.#over(same ? `Complete, in ${this.#pieces} ${pieces}` : 'Complete');
    this.element.classList.add('complete');
    this.element.classList.toggle('in-pieces', same);
  }

  /** @param {string} words */
  #over(words) {
    this.#answer.classList.remove('writing');
    this.#end.hidden = false;
    this.#end.textContent = words;
  }
}

/** @param {unknown} content */
const asText = (content) => (typeof content === 'string' ? content : JSON.stringify(content));
