// From counts that go on to what happened in each stretch of time. Pure: samples in, traces out.

/** @typedef {import('./api.js').Sample} Sample */
/** @typedef {import('./plot.js').Data} Data */
/** @typedef {import('./plot.js').Trace} Trace */

/** Outcomes that are nobody's fault but the server's or its bounds'. */
const SERVER = ['rate_limited', 'server_busy', 'database_unavailable', 'internal_error'];

/**
 * Samples by stretches of time: for each the last sample in it, or nothing.
 *
 * @param {Sample[]} samples oldest first
 * @param {number} from @param {number} to milliseconds
 * @param {number} bins
 * @returns {(Sample|null)[]} one more than there are bins: first the last one before them
 */
export function byTime(samples, from, to, bins) {
  /** @type {(Sample|null)[]} */
  const last = new Array(bins + 1).fill(null);
  for (const sample of samples) {
    const bin = Math.floor(((sample.at_ms - from) / (to - from)) * bins);
    if (bin < bins) last[Math.max(0, bin + 1)] = sample;
    else if (sample.at_ms <= to) last[bins] = sample;
  }
  return last;
}

/** What each stretch has of a number. @param {(Sample|null)[]} last @param {(sample: Sample) => number} read
 *  @returns {(number|null)[]} */
export function levels(last, read) {
  return last.slice(1).map((sample) => sample && read(sample));
}

/** By how much a count grew in each stretch; nothing where it is not known.
 *  @param {(Sample|null)[]} last @param {(sample: Sample) => number} read @returns {(number|null)[]} */
export function growth(last, read) {
  /** @type {number|null} */
  let before = last[0] && read(last[0]);
  return last.slice(1).map((sample) => {
    if (!sample) return null;
    const now = read(sample);
    const grown = before === null ? null : Math.max(0, now - before);
    before = now;
    return grown;
  });
}

/**
 * A quantile in each stretch, of what lay at or below which bounds: within a bucket all values are taken to be
 * spread evenly. Nothing where nothing happened.
 *
 * @param {(Sample|null)[]} last
 * @param {(sample: Sample) => number[]|null} read how many lay at or below each bound, and last in all
 * @param {number[]} bounds
 * @param {number} share 0.5 is the median
 * @returns {(number|null)[]}
 */
export function quantiles(last, read, bounds, share) {
  /** @type {number[]|null} */
  let before = last[0] && read(last[0]);
  return last.slice(1).map((sample) => {
    const now = sample && read(sample);
    if (!now) return null;
    const counts = before && now.map((count, index) => count - /** @type {number[]} */ (before)[index]);
    before = now;
    return counts && quantile(counts, bounds, share);
  });
}

/** @param {number[]} counts cumulated, and last in all @param {number[]} bounds @param {number} share */
export function quantile(counts, bounds, share) {
  const all = counts[counts.length - 1];
  if (all <= 0) return null;
  const rank = share * all;
  const bucket = counts.findIndex((count) => count >= rank);
  if (bucket >= bounds.length) return bounds[bounds.length - 1];
  const [low, under] = bucket === 0 ? [0, 0] : [bounds[bucket - 1], counts[bucket - 1]];
  const inside = counts[bucket] - under;
  return low + (bounds[bucket] - low) * (inside > 0 ? (rank - under) / inside : 1);
}

/** Attempts to come back by how they ended, in the three ways that call for something else: nothing, a look at the
 *  client, a look at the server. @param {(Sample|null)[]} last @returns {Trace[]} */
export function outcomes(last) {
  const of = (/** @type {(reason: string) => boolean} */ counts) => (/** @type {Sample} */ sample) =>
    Object.entries(sample.reconnects).reduce((sum, [reason, count]) => sum + (counts(reason) ? count : 0), 0);
  const came = growth(
    last,
    of((reason) => reason === 'reconnected'),
  );
  const turned = growth(
    last,
    of((reason) => SERVER.includes(reason)),
  );
  const refused = growth(
    last,
    of((reason) => reason !== 'reconnected' && !SERVER.includes(reason)),
  );
  return [
    { name: 'back', color: 'accent', shape: 'bar', values: came },
    { name: 'refused', color: 'warn', shape: 'bar', values: refused },
    { name: 'turned away', color: 'bad', shape: 'bar', values: turned },
  ];
}
