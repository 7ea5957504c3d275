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
const messageId = crypto.randomUUID();
if (question !== undefined) session.send(question, { messageId }).catch((error) => console.error(error.message));
void session.connect();

let pieces = 0;
for await (const { event, content, metadata } of session) {
  if (event === 'agent.answer_delta') {
    process.stdout.write(content);
    pieces += 1;
  } else if (event === 'agent.final_answer') {
    // The whole answer, which the pieces have said already; or there were none.
    process.stdout.write(pieces === 0 && content ? `${content}\n` : '\n');
    pieces = 0;
    // Else it was the end of an answer that was cut short when this program was stopped.
    if (question === undefined || metadata.message_id === messageId) break;
  }
}
await session.close(); // the session stays on the server; session.json says how far we are
