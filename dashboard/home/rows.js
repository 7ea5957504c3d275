// A long table of which only what is on the screen exists. Rows have one height; those that leave the screen are
// used again for those that come. One moves through it with the arrow keys, Page Up and Down, Home and End.

import { h } from './dom.js';

/** Rows kept ready above and below the screen. */
const AROUND = 4;

/** @typedef {HTMLElement & { index?: number }} Row */

export class Rows {
  /**
   * @param {HTMLElement} viewport what scrolls
   * @param {{ make: () => HTMLElement, fill: (row: HTMLElement, index: number) => void,
   *   moved?: (first: number, last: number) => void }} how makes an empty row with something in it that takes the
   *   focus; fills one; is told which rows are on the screen
   */
  constructor(viewport, { make, fill, moved = () => {} }) {
    this.viewport = viewport;
    this.make = make;
    this.fill = fill;
    this.moved = moved;
    this.count = 0;
    /** @type {Row[]} */
    this.rows = [];
    this.space = h('div', { class: 'rows', role: 'rowgroup' });
    viewport.append(this.space);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(viewport);
    this.drawing = 0;
    viewport.addEventListener('scroll', () => this.later(), { passive: true });
    viewport.addEventListener('keydown', (event) => this.key(event));
  }

  /** The height of a row, which the style sheet knows. */
  get height() {
    return Number.parseFloat(getComputedStyle(this.viewport).getPropertyValue('--row')) || 44;
  }

  /** What the column heads, which stay on top, take of the screen. */
  get head() {
    return this.space.offsetTop;
  }

  /** There are so many rows now. Draws them. @param {number} count */
  resize(count) {
    this.count = count;
    this.viewport.setAttribute('aria-rowcount', String(count + 1));
    this.draw();
  }

  /** Draws before the browser does so next. */
  later() {
    this.drawing ||= requestAnimationFrame(() => this.draw());
  }

  /** Which rows are on the screen. @returns {[number, number]} the first, and the one after the last */
  range() {
    const [height, top] = [this.height, this.viewport.scrollTop];
    const first = Math.max(0, Math.floor(top / height));
    const last = Math.ceil((top + this.viewport.clientHeight - this.head) / height);
    return [Math.min(first, this.count), Math.min(this.count, last)];
  }

  draw() {
    cancelAnimationFrame(this.drawing);
    this.drawing = 0;
    const height = this.height;
    this.space.style.height = `${this.count * height}px`;
    const [first, last] = this.range();
    const wanted = new Set();
    for (let index = Math.max(0, first - AROUND); index < Math.min(this.count, last + AROUND); index += 1) {
      wanted.add(index);
    }
    const free = [];
    for (const row of this.rows) {
      const index = row.index ?? -1;
      const stays = wanted.delete(index) || (row.contains(document.activeElement) && index < this.count);
      if (stays) this.fill(row, index);
      else free.push(row);
    }
    for (const index of wanted) this.place(free.pop() ?? this.another(), index, height);
    for (const row of free) {
      row.hidden = true;
      row.index = undefined;
    }
    this.moved(first, last);
  }

  /** @returns {Row} */
  another() {
    const row = /** @type {Row} */ (this.make());
    row.setAttribute('role', 'row');
    this.rows.push(row);
    this.space.append(row);
    return row;
  }

  /** @param {Row} row @param {number} index @param {number} height */
  place(row, index, height) {
    row.index = index;
    row.hidden = false;
    row.style.transform = `translateY(${index * height}px)`;
    row.setAttribute('aria-rowindex', String(index + 2));
    this.fill(row, index);
  }

  /** Scrolls a row onto the screen. @param {number} index */
  show(index) {
    const [height, top] = [this.height, this.viewport.scrollTop];
    const visible = this.viewport.clientHeight - this.head;
    if (index * height < top) this.viewport.scrollTop = index * height;
    else if ((index + 1) * height > top + visible) this.viewport.scrollTop = (index + 1) * height - visible;
    this.draw();
  }

  /** Scrolls to the end. */
  toEnd() {
    this.viewport.scrollTop = this.viewport.scrollHeight;
    this.draw();
  }

  get isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.viewport;
    return scrollTop + clientHeight >= scrollHeight - this.height;
  }

  /** Puts the focus on a row. @param {number} index */
  focus(index) {
    const target = Math.max(0, Math.min(this.count - 1, index));
    this.show(target);
    const row = this.rows.find((one) => one.index === target);
    /** @type {HTMLElement|null|undefined} */ (row?.querySelector('a, button'))?.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const row = this.rows.find((one) => one.contains(document.activeElement));
    const page = Math.max(1, Math.floor(this.viewport.clientHeight / this.height) - 1);
    const at = row?.index ?? -1;
    /** @type {Record<string, number>} */
    const targets = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: this.count - 1,
    };
    if (!(event.key in targets) || event.altKey || event.ctrlKey || event.metaKey || this.count === 0) return;
    event.preventDefault();
    this.focus(targets[event.key]);
  }

  /** It is not shown any more. */
  close() {
    cancelAnimationFrame(this.drawing);
    this.observer.disconnect();
  }
}
