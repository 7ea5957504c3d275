// Small plots over time, drawn as SVG. What is drawn is decided elsewhere; here are scales, axes, lines, bars and
// the reading at the pointer.

import { h, s, say } from './dom.js';
import { moment } from './words.js';

const [WIDTH, HEIGHT] = [360, 150];
const EDGE = { left: 46, right: 8, top: 8, bottom: 20 };

/**
 * @typedef {{ name: string, color: string, shape: 'line'|'area'|'bar', values: (number|null)[] }} Trace values by
 *   bin; a bar stands on those before it
 * @typedef {{ from: number, to: number, bins: number, traces: Trace[] }} Data times in milliseconds
 */

export class Plot {
  /** @param {{ title: string, unit: string, format: (value: number) => string, log?: boolean, floor?: number }} how
   *   `log`: the scale is logarithmic; `floor`: the least that its end shows */
  constructor({ title, unit, format, log = false, floor = 1 }) {
    this.format = format;
    this.log = log;
    this.floor = floor;
    this.svg = s('svg', { role: 'img', 'aria-label': title, preserveAspectRatio: 'none' });
    this.legend = h('ul', { class: 'legend' });
    this.when = h('span', { class: 'quiet small when' });
    const heading = h('h3', {}, title, ' ', h('span', { class: 'quiet' }, unit));
    this.element = h(
      'figure',
      { class: 'card plot' },
      h('figcaption', {}, heading, this.when),
      this.svg,
      this.legend,
    );
    this.title = title;
    /** @type {Data|null} */
    this.data = null;
    /** @type {number|null} the bin at the pointer */
    this.at = null;
    this.width = WIDTH;
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.svg);
    this.svg.addEventListener('pointermove', (event) => this.point(event.offsetX));
    this.svg.addEventListener('pointerleave', () => this.point(null));
  }

  /** @param {Data} data */
  show(data) {
    this.data = data;
    this.draw();
  }

  /** @param {number|null} x */
  point(x) {
    if (!this.data) return;
    const inside = this.width - EDGE.left - EDGE.right;
    const bin = x === null ? -1 : Math.floor(((x - EDGE.left) / inside) * this.data.bins);
    this.at = bin >= 0 && bin < this.data.bins ? bin : null;
    this.draw();
  }

  draw() {
    const { data } = this;
    this.width = this.svg.clientWidth || WIDTH;
    if (!data) return;
    this.svg.setAttribute('viewBox', `0 0 ${this.width} ${HEIGHT}`);
    const scale = this.scale(data);
    const inside = this.width - EDGE.left - EDGE.right;
    const x = (/** @type {number} */ bin) => EDGE.left + (bin / data.bins) * inside;
    this.svg.replaceChildren(
      ...this.grid(scale),
      ...times(data, x),
      ...marks(data, x, scale.y),
      ...this.pointer(x),
    );
    this.read(data);
  }

  /** @param {Data} data @returns {{ ticks: number[], y: (value: number) => number }} */
  scale(data) {
    const [low, high] = [HEIGHT - EDGE.bottom, EDGE.top];
    if (this.log) return logarithmic(data, this.floor, low, high);
    const top = nice(Math.max(this.floor, highest(data)));
    return { ticks: [0, top / 2, top], y: (value) => low + (high - low) * (value / top) };
  }

  /** @param {{ ticks: number[], y: (value: number) => number }} scale */
  grid({ ticks, y }) {
    return ticks.flatMap((tick) => [
      s('line', { class: 'grid', x1: EDGE.left, x2: this.width - EDGE.right, y1: y(tick), y2: y(tick) }),
      s('text', { x: EDGE.left - 6, y: y(tick) + 3.5, 'text-anchor': 'end' }, this.format(tick)),
    ]);
  }

  /** @param {(bin: number) => number} x */
  pointer(x) {
    if (this.at === null) return [];
    const middle = x(this.at + 0.5);
    return [s('line', { class: 'pointer', x1: middle, x2: middle, y1: EDGE.top, y2: HEIGHT - EDGE.bottom })];
  }

  /** The values at the pointer; without one the latest, or of bars the sum. @param {Data} data */
  read(data) {
    const bin = this.at;
    say(this.when, bin === null ? '' : moment(data.from + ((bin + 0.5) / data.bins) * (data.to - data.from)));
    const entries = data.traces.map((trace) => {
      const value = bin === null ? summary(trace) : trace.values[bin];
      const text = value === null || value === undefined ? '–' : this.format(value);
      return { trace, text };
    });
    const label = `${this.title}: ${entries.map(({ trace, text }) => `${trace.name} ${text}`).join(', ')}`;
    this.svg.setAttribute('aria-label', label);
    const items = entries.map(({ trace, text }) =>
      h(
        'li',
        {},
        h('span', { class: `swatch ${trace.color}`, 'aria-hidden': 'true' }),
        `${trace.name} `,
        h('b', {}, text),
      ),
    );
    this.legend.replaceChildren(...items);
  }

  close() {
    this.observer.disconnect();
  }
}

/** @param {Trace} trace @returns {number|null} */
function summary({ shape, values }) {
  if (shape !== 'bar') return values.findLast((value) => value !== null) ?? null;
  return values.reduce((/** @type {number} */ sum, value) => sum + (value ?? 0), 0);
}

/** @param {Data} data */
function highest({ bins, traces }) {
  let most = 0;
  for (let bin = 0; bin < bins; bin += 1) {
    let stacked = 0;
    for (const { shape, values } of traces) {
      const value = values[bin] ?? 0;
      stacked = shape === 'bar' ? stacked + value : stacked;
      most = Math.max(most, value, stacked);
    }
  }
  return most;
}

/** The next number that reads well and has a half that does. @param {number} value */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 4, 6, 8, 10].find((factor) => factor * power >= value) ?? 10;
  return step * power;
}

/** @param {Data} data @param {number} floor @param {number} low @param {number} high */
function logarithmic(data, floor, low, high) {
  const values = data.traces.flatMap((trace) => trace.values).filter((value) => value !== null);
  const least = Math.floor(Math.log10(Math.min(floor, ...values.filter((value) => value > 0))) + 1e-9);
  const most = Math.max(least + 1, Math.ceil(Math.log10(Math.max(floor, ...values)) - 1e-9));
  const every = Math.ceil((most - least) / 3);
  const ticks = [];
  for (let power = least; power <= most; power += every) ticks.push(10 ** power);
  const y = (/** @type {number} */ value) => {
    const share = (Math.log10(Math.max(value, 10 ** least)) - least) / (most - least);
    return low + (high - low) * share;
  };
  return { ticks, y };
}

/** @param {Data} data @param {(bin: number) => number} x */
function times({ from, to, bins }, x) {
  const label = (/** @type {number} */ bin, /** @type {string} */ anchor) => {
    const at = new Date(from + (bin / bins) * (to - from));
    const text = at.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });
    return s('text', { x: x(bin), y: HEIGHT - 5, 'text-anchor': anchor }, text);
  };
  return [label(0, 'start'), label(bins / 2, 'middle'), label(bins, 'end')];
}

/** @param {Data} data @param {(bin: number) => number} x @param {(value: number) => number} y */
function marks(data, x, y) {
  const stacked = new Array(data.bins).fill(0);
  return data.traces.flatMap((trace) => {
    if (trace.shape === 'bar') return bars(trace, stacked, x, y);
    const path = line(trace.values, x, y);
    const under =
      trace.shape === 'area' ? [s('path', { class: `area ${trace.color}`, d: area(trace.values, x, y) })] : [];
    return [...under, s('path', { class: `line ${trace.color}`, d: path }), ...alone(trace, x, y)];
  });
}

/** @param {Trace} trace @param {number[]} stacked @param {(bin: number) => number} x
 *  @param {(value: number) => number} y */
function bars(trace, stacked, x, y) {
  const drawn = [];
  const width = Math.max(1, x(1) - x(0) - 1);
  for (const [bin, value] of trace.values.entries()) {
    if (!value) continue;
    const [bottom, top] = [y(stacked[bin]), y(stacked[bin] + value)];
    stacked[bin] += value;
    const height = Math.max(1, bottom - top);
    drawn.push(s('rect', { class: `bar-mark ${trace.color}`, x: x(bin), y: bottom - height, width, height }));
  }
  return drawn;
}

/** Dots for values that no line goes through. @param {Trace} trace @param {(bin: number) => number} x
 *  @param {(value: number) => number} y */
function alone({ values, color }, x, y) {
  return values.flatMap((value, bin) => {
    const neighbours = (values[bin - 1] ?? null) !== null || (values[bin + 1] ?? null) !== null;
    if (value === null || neighbours) return [];
    return [s('circle', { class: `dot-mark ${color}`, cx: x(bin + 0.5), cy: y(value), r: 2.5 })];
  });
}

/** A line through what is known; where nothing is, there is no line.
 *  @param {(number|null)[]} values @param {(bin: number) => number} x @param {(value: number) => number} y */
function line(values, x, y) {
  let path = '';
  for (const [bin, value] of values.entries()) {
    if (value === null) continue;
    const begins = bin === 0 || values[bin - 1] === null;
    path += `${begins ? 'M' : 'L'}${x(bin + 0.5).toFixed(1)} ${y(value).toFixed(1)}`;
  }
  return path;
}

/** @param {(number|null)[]} values @param {(bin: number) => number} x @param {(value: number) => number} y */
function area(values, x, y) {
  let path = '';
  let from = -1;
  for (let bin = 0; bin <= values.length; bin += 1) {
    const known = (values[bin] ?? null) !== null;
    if (known && from < 0) from = bin;
    if (known || from < 0) continue;
    const points = values
      .slice(from, bin)
      .map((value, index) => `L${x(from + index + 0.5).toFixed(1)} ${y(value ?? 0).toFixed(1)}`);
    path += `M${x(from + 0.5).toFixed(1)} ${y(0)}${points.join('')}L${x(bin - 0.5).toFixed(1)} ${y(0)}Z`;
    from = -1;
  }
  return path;
}
