// The line protocol of the client drivers, for the clients in JavaScript. One JSON object a line.
//
// in    {"op":"connect","url":…,"transport":"http"|"sse"}
//       {"op":"call","id":1,"name":…,"arguments":{…},"timeout_ms":…,"progress":true}
//       {"op":"list_tools"|"list_prompts"|"list_resources","id":2}   {"op":"read","id":3,"uri":…}
//       {"op":"set_level","id":4,"level":…}   {"op":"close"}
// out   {"event":"connected","revision":…,"session":…} or {"event":"failed","message":…}
//       {"id":1,"result":…} or {"id":1,"error":{"code","message","data"}}, as they come
//       {"event":"progress","id":1,"params":…}   {"event":"notification","method":…,"params":…}
//       {"event":"asked","method":…,"params":…}, which the driver answers by itself
//       {"event":"complaint","message":…}, what the client reports besides; {"event":"closed"}
//
// The client objects are made as their users make them: no option that would help them survive. A driver of a client
// that knows revisions with and without sessions is told by its argument which to take: `legacy` or `auto`; CLIENT_NAME
// is what the client calls itself.

import { createInterface } from 'node:readline';

export const info = { name: process.env.CLIENT_NAME ?? 'rejoin-test-client', version: '1.0.0' };
export const capabilities = { elicitation: {}, sampling: {} };

const say = line => process.stdout.write(`${JSON.stringify(line)}\n`);

// Answers that tests can recognise. Both clients hand over the whole request.
export const answers = {
  elicit({ params }) {
    say({ event: 'asked', method: 'elicitation/create', params });
    return { action: 'accept', content: { answer: 'yes' } };
  },
  sample({ params }) {
    say({ event: 'asked', method: 'sampling/createMessage', params });
    return { role: 'assistant', model: 'a-test', content: { type: 'text', text: 'hello' } };
  },
};

// Talks until told to close: with a client, a transport that `make(kind, url)` gives, and the one method
// whose parameters differ between versions, `call(params, options)`.
export async function run({ client, call, make }) {
  client.fallbackNotificationHandler = async ({ method, params }) => say({ event: 'notification', method, params });
  client.onerror = error => say({ event: 'complaint', message: String(error?.message ?? error) });
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    if (request.op === 'connect') await connect(client, make(request.transport, new URL(request.url)));
    else if (request.op === 'close') break;
    else perform(client, call, request); // several at once
  }
  await client.close();
  say({ event: 'closed' });
  process.exit(0);
}

async function connect(client, transport) {
  try {
    await client.connect(transport);
    say({ event: 'connected', revision: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion, session: transport.sessionId });
  } catch (error) {
    say({ event: 'failed', message: String(error?.message ?? error) });
  }
}

async function perform(client, call, { id, op, ...request }) {
  try {
    const result = op === 'call' ? await callTool(call, id, request) : await operations[op](client, request);
    say({ id, result });
  } catch ({ code, message, data }) {
    say({ id, error: { code, message, data } });
  }
}

function callTool(call, id, { name, arguments: args, timeout_ms: timeout, progress }) {
  const onprogress = params => say({ event: 'progress', id, params });
  return call({ name, arguments: args }, { ...(timeout && { timeout }), ...(progress && { onprogress }) });
}

const operations = {
  list_tools: client => client.listTools(),
  list_prompts: client => client.listPrompts(),
  list_resources: client => client.listResources(),
  read: (client, { uri }) => client.readResource({ uri }),
  set_level: (client, { level }) => client.setLoggingLevel(level),
};
