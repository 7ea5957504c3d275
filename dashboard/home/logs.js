// The two logs of a session as one list. Pure: what is drawn of it is in `events.js`.

/** @typedef {import('./api.js').Sent} Sent */
/** @typedef {import('./api.js').Message} Message */
/** @typedef {{ sent?: Sent, message?: Message }} Line an event or a gap, or a message */

/** @type {WeakMap<Sent, number>} */
const ANSWERED = new WeakMap();

/** Metadata that is the envelope's last member and holds no object or list: in it the name can stand once only, as inside
 *  of a text the quotes would be escaped. */
const FLAT = /^"metadata":\{[^{}[\]]*\}\}$/;

/** The number of the message that an event answers; 0 if it names none. Mostly it is found without reading the JSON, which
 *  most events are never shown for. @param {Sent} sent */
export function answered(sent) {
  const known = ANSWERED.get(sent);
  if (known !== undefined) return known;
  const number = sent.kind === 'event' ? namedIn(sent.data) : 0;
  ANSWERED.set(sent, number);
  return number;
}

/** @param {string} data an envelope */
function namedIn(data) {
  const at = data.lastIndexOf('"metadata":{');
  if (at < 0) return 0;
  const metadata = data.slice(at);
  if (FLAT.test(metadata)) return Number(/"in_seq":(\d+)/.exec(metadata)?.[1] ?? 0);
  const named = JSON.parse(data).metadata?.in_seq;
  return Number.isSafeInteger(named) ? named : 0;
}

/** Each message before the first event that answers it or a later one; those that nothing answers yet come last.
 *  @param {Sent[]} all events, oldest first @param {Message[]} messages oldest first @returns {Line[]} */
export function woven(all, messages) {
  /** @type {Line[]} */
  const lines = [];
  let next = 0;
  for (const sent of all) {
    for (const number = answered(sent); next < messages.length && messages[next].in_seq <= number; next += 1) {
      lines.push({ message: messages[next] });
    }
    lines.push({ sent });
  }
  for (; next < messages.length; next += 1) lines.push({ message: messages[next] });
  return lines;
}
