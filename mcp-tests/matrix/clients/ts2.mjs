// The official TypeScript SDK, version 2, as it is by default: revisions with sessions.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { serve } from './line.mjs';

await serve(async url => {
  const client = new Client({ name: 'ts2', version: '1' });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return (name, args) => client.callTool({ name, arguments: args });
});
