// The strip: one mark for each event, by its number. It is told of every event twice: when it arrives, and
// when the client hands it on. What arrives again after that, the client has dropped as a duplicate.

/** @typedef {import('/assets/client/index.js').Frame} Frame */

/** Marks that are shown; older ones leave, and stay counted. */
const SHOWN = 600;

export class Strip {
  /** @type {Map<number, HTMLElement>} */
  #marks = new Map();
  #counts = { received: 0, replayed: 0, dropped: 0, missing: 0 };
  #first = 0;
  #last = 0;
  #place;
  #tell;

  /** @param {HTMLElement} place @param {(counts: Record<string, number>) => void} tell */
  constructor(place, tell) {
    this.#place = place;
    this.#tell = tell;
  }

  get isEmpty() {
    return this.#last === 0;
  }

  /** Another session, whose numbers begin anew. */
  clear() {
    this.#marks.clear();
    this.#place.replaceChildren();
    this.#counts = { received: 0, replayed: 0, dropped: 0, missing: 0 };
    this.#first = this.#last = 0;
    this.#say();
  }

  /** It has arrived. @param {Frame} event */
  arrived(event) {
    const seq = Number(event.seq);
    if (seq > this.#last || seq < this.#first) return; // new: it will be handed on
    this.#counts.dropped += 1;
    const mark = this.#marks.get(seq);
    if (mark) {
      mark.classList.add('dropped');
      mark.title += '; came again, dropped';
    }
    this.#say();
  }

  /** The client has handed it on. @param {Frame} event */
  handed(event) {
    const seq = Number(event.seq);
    const kind = event.metadata?.replayed ? 'replayed' : 'received';
    if (this.#first === 0) this.#first = seq;
    else if (seq > this.#last + 1) this.#leaveOut(this.#last + 1, seq - 1);
    this.#last = seq;
    this.#counts[kind] += 1;
    this.#add(seq, kind, `${seq} ${event.event}: ${kind}`);
    this.#say();
  }

  /** The connection was lost here. */
  tear() {
    if (this.#place.lastElementChild?.className === 'tear') return;
    const tear = document.createElement('span');
    tear.className = 'tear';
    this.#place.append(tear);
  }

  /** @param {number} from @param {number} to */
  #leaveOut(from, to) {
    this.#counts.missing += to - from + 1;
    const title = from === to ? `${from}: missing` : `${from} to ${to}: missing`;
    this.#add(from, 'missing', title);
  }

  /** @param {number} seq @param {string} kind @param {string} title */
  #add(seq, kind, title) {
    const mark = document.createElement('span');
    mark.className = `mark ${kind}`;
    mark.title = title;
    mark.dataset.seq = String(seq);
    this.#place.append(mark);
    this.#marks.set(seq, mark);
    if (this.#place.childElementCount > SHOWN) this.#forgetOldest();
  }

  #forgetOldest() {
    const oldest = /** @type {HTMLElement} */ (this.#place.firstElementChild);
    if (oldest.dataset.seq) this.#marks.delete(Number(oldest.dataset.seq));
    oldest.remove();
  }

  #say() {
    const { received, replayed, dropped, missing } = this.#counts;
    this.#tell({ ...this.#counts });
    this.#place.ariaLabel =
      this.#last === 0
        ? 'No events yet'
        : `Events ${this.#first} to ${this.#last}: ${received} received, ${replayed} replayed, ` +
          `${dropped} duplicates dropped, ${missing} missing`;
  }
}
