// Vercel's AI SDK, its first version, which knows only revisions with sessions.
import { createMCPClient } from 'ai-sdk-mcp-1';
import { serve } from './line.mjs';

await serve(async url => {
  const client = await createMCPClient({ transport: { type: 'http', url }, onUncaughtError: error => console.error(error) });
  const tools = await client.tools();
  return (name, args) => tools[name].execute(args, { toolCallId: '1', messages: [] });
});
