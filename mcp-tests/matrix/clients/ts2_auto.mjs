// The official TypeScript SDK, version 2, told to take the newest revision.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { serve } from './line.mjs';

await serve(async url => {
  const client = new Client({ name: 'ts2-auto', version: '1' }, { versionNegotiation: { mode: 'auto' } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return (name, args) => client.callTool({ name, arguments: args });
});
