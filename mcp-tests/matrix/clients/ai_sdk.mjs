// Vercel's AI SDK.
import { createMCPClient } from '@ai-sdk/mcp';
import { serve } from './line.mjs';

await serve(async url => {
  const client = await createMCPClient({ transport: { type: 'http', url }, onUncaughtError: error => console.error(error) });
  const tools = await client.tools();
  return (name, args) => tools[name].execute(args, { toolCallId: '1', messages: [] });
});
