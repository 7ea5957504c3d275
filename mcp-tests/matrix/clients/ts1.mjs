// The official TypeScript SDK, version 1.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { serve } from './line.mjs';

await serve(async url => {
  const client = new Client({ name: 'ts1', version: '1' });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return (name, args) => client.callTool({ name, arguments: args });
});
