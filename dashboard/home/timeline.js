// A session's story (`story.js`) as a list and as a strip.

import { h, s } from './dom.js';
import { stays } from './story.js';
import { moment, serverNow, several } from './words.js';

/** @typedef {import('./story.js').Entry} Entry */

/** The entries as a list, the latest first. @param {Entry[]} entries */
export function list(entries) {
  const items = entries
    .toReversed()
    .map(({ at, kind, title, generation, details, gap, lines = [] }) =>
      h(
        'li',
        { class: `${kind}${gap ? ' gap' : ''}` },
        h('time', { datetime: new Date(at).toISOString(), class: 'quiet' }, moment(at)),
        h('span', { class: 'mark', 'aria-hidden': 'true' }),
        h(
          'span',
          {},
          h('b', {}, title),
          generation ? h('span', { class: 'generation' }, `generation ${generation}`) : null,
          details.length ? ` ${details.join(', ')}` : null,
          lines.length ? lastWords(lines) : null,
        ),
      ),
    );
  return h('ol', { class: 'moments' }, ...items);
}

/** What a dead agent wrote to standard error. @param {string[]} lines */
const lastWords = (lines) =>
  h('pre', { class: 'words', tabindex: 0, role: 'group', 'aria-label': 'Its last words' }, lines.join('\n'));

const [WIDTH, HEIGHT] = [1000, 34];

/** When somebody was there, as a strip from the first entry to now. @param {Entry[]} entries */
export function strip(entries) {
  if (entries.length === 0) return null;
  const [from, over] = [entries[0].at, entries.findLast((entry) => entry.kind === 'ended')?.at];
  const to = Math.max(over ?? serverNow(), from + 1000);
  const x = (/** @type {number} */ at) => ((at - from) / (to - from)) * WIDTH;
  const spans = stays(entries, to).map(([begin, end]) =>
    s('rect', { class: 'stay', x: x(begin), y: 9, width: Math.max(2, x(end) - x(begin)), height: 16, rx: 2 }),
  );
  const marks = entries.filter((entry) => ['refused', 'died'].includes(entry.kind) || entry.gap);
  const drawn = marks.map((entry) =>
    s('rect', { class: entry.kind === 'refused' ? 'no' : 'lost', x: x(entry.at) - 1.5, y: 3, width: 3, height: 28 }),
  );
  const label = `Attached ${several(spans.length, 'time')} between ${moment(from)} and ${moment(to)}`;
  const picture = s(
    'svg',
    {
      class: 'strip',
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: 'none',
      role: 'img',
      'aria-label': label,
    },
    s('rect', { class: 'life', x: 0, y: 15, width: WIDTH, height: 4, rx: 2 }),
    ...spans,
    ...drawn,
  );
  const ends = h(
    'div',
    { class: 'ends quiet small' },
    h('span', {}, moment(from)),
    h('span', {}, over ? moment(over) : 'now'),
  );
  return h('div', {}, picture, ends);
}
