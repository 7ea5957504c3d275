// Compares what an application testifies to with what was promised, and with the server's record.

/**
 * Everything that is checked about one session; the first broken promise in words, or null.
 * @param {{ events: any[], surprises: string[], accepted: { message_id: string, in_seq: number }[] }} testimony
 * @param {any[]} record the out log as the server holds it
 */
export function judge(testimony, record) {
  return (
    (testimony.surprises.length > 0 ? `surprised: ${testimony.surprises[0]}` : null) ??
    inOrderEachOnce(testimony.events) ??
    asRecorded(testimony.events, record) ??
    answeredOnceInOrder(testimony)
  );
}

function inOrderEachOnce(events) {
  let last = 0;
  for (const [place, { seq }] of events.entries()) {
    if (seq <= last) {
      const before = events.slice(0, place).some((earlier) => earlier.seq === seq);
      return before ? `${seq} came twice` : `${seq} came after ${last}`;
    }
    if (seq !== last + 1 && !events.slice(place).some((later) => later.seq === last + 1))
      return `${last + 1} never came`;
    last = seq;
  }
  return null;
}

function asRecorded(events, record) {
  for (const [place, recorded] of record.entries()) {
    const event = events[place];
    if (!event) return `${recorded.seq} was not caught up with`;
    for (const member of ['seq', 'event_id', 'event', 'timestamp']) {
      if (event[member] !== recorded[member]) return `${event.seq} is not as recorded (${member})`;
    }
    if (JSON.stringify(event.content) !== JSON.stringify(recorded.content))
      return `${event.seq} is not as recorded`;
  }
  return events.length > record.length ? `${events[record.length].seq} is not in the record` : null;
}

function answeredOnceInOrder({ events, accepted }) {
  const confused = events.find(({ event }) => event === 'agent.confused');
  if (confused) return `the agent is confused: ${confused.content}`;
  const answers = events.filter(({ event }) => event === 'agent.answer').map(({ content }) => content);
  for (const [place, { message_id, in_seq }] of accepted.entries()) {
    const times = answers.filter((answer) => answer.message_id === message_id).length;
    if (times !== 1) return `${message_id} was answered ${times} times`;
    if (in_seq !== place + 1 || answers[place].message_id !== message_id)
      return `${message_id} is out of order`;
  }
  return answers.length === accepted.length ? null : 'an answer to nothing that was accepted';
}
