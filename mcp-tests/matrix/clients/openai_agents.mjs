// The OpenAI Agents SDK for JavaScript.
import { MCPServerStreamableHttp } from '@openai/agents';
import { serve } from './line.mjs';

await serve(async url => {
  const server = new MCPServerStreamableHttp({ url, name: 'rejoin' });
  await server.connect();
  return (name, args) => server.callTool(name, args);
});
