// mcp-client, the client beside FastMCP for TypeScript.
import { MCPClient } from 'mcp-client';
import { serve } from './line.mjs';

await serve(async url => {
  const client = new MCPClient({ name: 'mcp-client', version: '1' });
  await client.connect({ type: 'httpStream', url });
  return (name, args) => client.callTool({ name, arguments: args });
});
