// The official TypeScript client, version 2. The line protocol is line.mjs.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

import { answers, capabilities, info, run } from './line.mjs';

const versionNegotiation = { mode: process.argv[2] ?? 'legacy' };
const client = new Client(info, { capabilities, versionNegotiation });
client.setRequestHandler('elicitation/create', async request => answers.elicit(request));
client.setRequestHandler('sampling/createMessage', async request => answers.sample(request));

const call = (params, options) => client.callTool(params, options);
const make = (kind, url) => (kind === 'sse' ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url));
await run({ client, call, make });
