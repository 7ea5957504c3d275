// What a TypeScript program sees of the package: compiled, never run.

import {
  type Accepted,
  type Frame,
  LocalStorage,
  Session,
  SessionError,
  type Status,
  getReconnectToken,
} from 'rejoin-client';
import { FileStorage } from 'rejoin-client/file';
import { useRejoin } from 'rejoin-client/react';

const session: Session = new Session('/ws', {
  storage: new LocalStorage('chat'),
  fromBeginning: true,
  token: async () => 'key',
});
const sentence = (status: Status): string => {
  switch (status.state) {
    case 'connected':
      return `${status.session_id} ${status.how} ${status.caught_up}`;
    case 'reconnecting':
      return `attempt ${status.attempt} in ${status.delay_ms} ms`;
    case 'stopped':
      return status.reason;
    default:
      return status.state;
  }
};
const forget: () => void = session.on('status', (status) => console.log(sentence(status)));
session.on('gap', ({ from, to, lost }) => console.log(from, to, lost?.from));
const accepted: Accepted = await session.send({ text: 'hello' });
for await (const event of session) console.log((event satisfies Frame).seq, accepted.in_seq);
new Session('ws://127.0.0.1/ws', { storage: new FileStorage('x') });
const { reconnect_token }: { reconnect_token: string } = await getReconnectToken('sess_x');
const reason: string = new SessionError('refused', 'SERVER_BUSY').reason;
export const Component = () => useRejoin('/ws').events.length;
// @ts-expect-error: there is no such listener
session.on('nonsense', () => {});
console.log(forget, reconnect_token, reason);
