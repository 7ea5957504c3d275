// The official TypeScript client, version 1. The line protocol is line.mjs.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

import { answers, capabilities, info, run } from './line.mjs';

const client = new Client(info, { capabilities });
client.setRequestHandler(ElicitRequestSchema, async request => answers.elicit(request));
client.setRequestHandler(CreateMessageRequestSchema, async request => answers.sample(request));

const call = (params, options) => client.callTool(params, undefined, options);
const make = (kind, url) => (kind === 'sse' ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url));
await run({ client, call, make });
