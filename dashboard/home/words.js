// Numbers and times as people say them.

const NUMBER = new Intl.NumberFormat('en');

/** @param {number} count */
export const number = (count) => NUMBER.format(count);

/** A number short enough for an axis: `1.2k`. @param {number} count */
export function short(count) {
  if (count >= 1e6) return `${trim(count / 1e6)}M`;
  if (count >= 1e4) return `${trim(count / 1e3)}k`;
  return count >= 10 || Number.isInteger(count) ? number(Math.round(count)) : trim(count);
}

/** @param {number} value */
const trim = (value) => value.toFixed(1).replace(/\.0$/, '');

/** @param {number} count @param {string} noun */
export const several = (count, noun) => `${number(count)} ${noun}${count === 1 ? '' : 's'}`;

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${trim(bytes / 1024)} KiB`;
  return `${trim(bytes / 1024 / 1024)} MiB`;
}

/** How long, in one unit or two. @param {number} seconds */
export function span(seconds) {
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${trim(seconds * 1000)} ms`;
  if (seconds < 10) return `${trim(seconds)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return two(seconds, 60, 'min', 1, 's');
  if (seconds < 86400) return two(seconds, 3600, 'h', 60, 'min');
  return two(seconds, 86400, 'd', 3600, 'h');
}

/** @param {number} seconds @param {number} large @param {string} of @param {number} small @param {string} and */
function two(seconds, large, of, small, and) {
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${of}${rest ? ` ${rest} ${and}` : ''}`;
}

/** How far the clock here is from the server's, in milliseconds: what is “ago” is told by the server's. */
let ahead = 0;

/** The server says what time it is. @param {string} now */
export function clock(now) {
  ahead = Date.now() - Date.parse(now);
}

/** The time by the server's clock, in milliseconds. */
export const serverNow = () => Date.now() - ahead;

/** @param {string} at */
export function ago(at) {
  const seconds = (serverNow() - Date.parse(at)) / 1000;
  return seconds < 1 ? 'just now' : `${span(coarse(seconds))} ago`;
}

/** @param {string} at */
export function until(at) {
  const seconds = (Date.parse(at) - serverNow()) / 1000;
  return seconds < 1 ? 'now' : `in ${span(coarse(seconds))}`;
}

/** Long times need no small units. @param {number} seconds */
function coarse(seconds) {
  if (seconds < 600) return Math.floor(seconds);
  return seconds < 36000 ? seconds - (seconds % 60) : seconds - (seconds % 3600);
}

/** The time of day, with the date if it is another one. @param {string|number} at */
export function moment(at) {
  const date = new Date(at);
  const time = date.toLocaleTimeString('en-GB');
  const today = new Date(serverNow()).toDateString() === date.toDateString();
  return today ? time : `${date.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })}, ${time}`;
}

/** What a client says of itself, in a few words. @param {Record<string, unknown>} client */
export function about(client) {
  const info = /** @type {Record<string, unknown>} */ (client.clientInfo ?? client);
  const name = info.name ?? info.client_id ?? info.client ?? info.app;
  const version = info.version ?? info.app_version;
  const known = [name, version].filter((part) => typeof part === 'string' && part !== '');
  if (known.length) return known.join(' ');
  const text = JSON.stringify(client);
  return text === '{}' ? '' : text;
}

/** A session's state in a word. @param {{ status: string, attached: boolean }} record */
export function stateOf(record) {
  return record.status === 'active' ? (record.attached ? 'attached' : 'parked') : record.status;
}
