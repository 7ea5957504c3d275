// A program that makes a server on standard input and output out of a URL, before a client of the official SDK that is
// not looked at: mcp-remote, supergateway, mcp-proxy. BRIDGE is its command line, as JSON; `URL` in it is the address.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { serve } from './line.mjs';

await serve(async url => {
  const [command, ...args] = JSON.parse(process.env.BRIDGE).map(part => part.replace('URL', url));
  const client = new Client({ name: 'behind-a-bridge', version: '1' });
  await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));
  return (name, args) => client.callTool({ name, arguments: args });
});
