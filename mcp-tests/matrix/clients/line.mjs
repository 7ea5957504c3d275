// What the drivers of the matrix have in common; the line protocol is in line.py.

import { createInterface } from 'node:readline';

const say = line => process.stdout.write(`${JSON.stringify(line)}\n`);
for (const method of ['log', 'info', 'debug']) console[method] = console.error; // what libraries print is no answer

// The text of a tool's result; an error if it says that it is one.
export function textOf(result) {
  if (result?.isError) throw new Error(JSON.stringify(result.content ?? result));
  const first = Array.isArray(result) ? result[0] : (result?.content?.[0] ?? result);
  return String(first?.text ?? first);
}

// Drives a client that `connect(url)` makes, as `call(tool, arguments)`.
export async function serve(connect) {
  process.on('unhandledRejection', error => console.error('unhandled', error)); // as most applications do
  const call = await connect(process.argv[2]);
  say({ event: 'ready' });
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, tool, arguments: args } = JSON.parse(line);
    (async () => textOf(await call(tool, args)))().then(
      result => say({ id, result }),
      error => say({ id, error: `${error?.name}: ${error?.message}`.slice(0, 500) }),
    );
  }
  process.exit(0);
}
