// MCPorter.
import { createServerProxy, createRuntime } from 'mcporter';
import { serve } from './line.mjs';

await serve(async url => {
  const runtime = await createRuntime({ servers: [{ name: 'rejoin', command: { kind: 'http', url: new URL(url) } }] });
  return (name, args) => runtime.callTool('rejoin', name, { args });
});
