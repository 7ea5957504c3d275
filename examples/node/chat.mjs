// Asks a question and prints the answer as it comes, whatever happens to the server meanwhile. Stopped in the
// middle and started again without a question, it prints the rest.
//
//   node chat.mjs "How are you?"        a server elsewhere: REJOIN_URL=ws://…/ws

import { Session } from 'rejoin-client';
import { FileStorage } from 'rejoin-client/file';
import { WebSocket } from 'ws'; // Node has one of its own from 22 on

const url = process.env.REJOIN_URL ?? 'ws://127.0.0.1:8181/ws';
const storage = new FileStorage(process.env.REJOIN_FILE ?? 'session.json');
const question = process.argv[2];

const session = new Session(url, { storage, WebSocket });
session.on('status', ({ state }) => console.error(`(${state})`));
if (question !== undefined) session.send(question).catch((error) => console.error(error.message));
void session.connect();

for await (const { event, content } of session) {
  if (event === 'agent.answer_delta') process.stdout.write(content);
  if (event === 'agent.final_answer') break;
}
process.stdout.write('\n');
await session.close(); // the session stays on the server; session.json says how far we are
