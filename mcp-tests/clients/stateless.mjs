// A client of revision 2026-07-28 without an SDK, for what no SDK's client does yet: tasks. The line protocol
// is line.mjs; besides, {"op":"request","id":1,"method":…,"params":{…},"capabilities":{…}}, answered with the whole
// answer: {"id":1,"result":{"status","body"}}.

import { createInterface } from 'node:readline';

import { info } from './line.mjs';

const revision = '2026-07-28';
const prefix = 'io.modelcontextprotocol/';
const say = line => process.stdout.write(`${JSON.stringify(line)}\n`);
let url;

function body(id, method, params, capabilities = {}) {
  const _meta = { [`${prefix}protocolVersion`]: revision, [`${prefix}clientInfo`]: info, [`${prefix}clientCapabilities`]: capabilities };
  return { jsonrpc: '2.0', id, method, params: { ...params, _meta: { ...params?._meta, ..._meta } } };
}

async function request({ id, method, params, capabilities }) {
  const about = params?.name ?? params?.uri ?? params?.taskId;
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'MCP-Protocol-Version': revision,
      'Mcp-Method': method,
      ...(about && { 'Mcp-Name': about }),
    },
    body: JSON.stringify(body(id, method, params, capabilities)),
  });
  const text = await response.text();
  const lines = text.split('\n').filter(line => line.startsWith('data: '));
  return { status: response.status, body: JSON.parse(lines.at(-1)?.slice(6) ?? text) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  if (asked.op === 'close') break;
  if (asked.op === 'connect') {
    url = asked.url;
    say({ event: 'connected', revision });
  } else {
    request(asked).then(result => say({ id: asked.id, result }), error => say({ id: asked.id, error: { message: error.message } }));
  }
}
process.exit(0);
