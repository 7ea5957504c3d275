// The official TypeScript SDK, version 1, over `/sse`.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { serve } from './line.mjs';

await serve(async url => {
  const client = new Client({ name: 'ts1-sse', version: '1' });
  await client.connect(new SSEClientTransport(new URL(url)));
  return (name, args) => client.callTool({ name, arguments: args });
});
