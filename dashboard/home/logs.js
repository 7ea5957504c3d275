// The two logs of a session as one list. Pure: what is drawn of it is in `events.js`.

/** @typedef {import('./api.js').Sent} Sent */
/** @typedef {import('./api.js').Message} Message */
/** @typedef {{ sent?: Sent, message?: Message }} Line an event or a gap, or a message */

/** @type {WeakMap<Sent, number>} */
const ANSWERED = new WeakMap();

/** The number of the message that an event answers; 0 if it names none. It is found without reading the JSON, which most
 *  events are never shown for: metadata is the last member that can have this name, and inside of a text the quotes
 *  would be escaped. @param {Sent} sent */
export function answered(sent) {
  const known = ANSWERED.get(sent);
  if (known !== undefined) return known;
  const metadata = sent.kind === 'event' ? sent.data.lastIndexOf('"metadata":{') : -1;
  const found = metadata < 0 ? null : /"in_seq":(\d+)/.exec(sent.data.slice(metadata));
  const number = found ? Number(found[1]) : 0;
  ANSWERED.set(sent, number);
  return number;
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
