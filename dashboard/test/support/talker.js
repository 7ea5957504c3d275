// An agent that talks as much as it is asked to.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The command of an agent that answers a number with as many tokens. It names no entry but the one that is done.
 *  @param {import('node:test').TestContext} t */
export function talker(t) {
  const directory = mkdtempSync(join(tmpdir(), 'rejoin-talker-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const script = join(directory, 'talker.mjs');
  writeFileSync(
    script,
    `import { createInterface } from 'node:readline';
     for await (const line of createInterface(process.stdin)) {
       const { event, content, in_seq } = JSON.parse(line);
       if (event !== 'user.message') continue;
       const lines = [];
       if (content === 'say it whole') {
         console.log(JSON.stringify({ event: 'agent.final_answer', content: 'the whole answer', in_seq }));
         continue;
       }
       for (let n = 1; n <= Number(content); n += 1) lines.push(JSON.stringify({ event: 'agent.answer_delta', content: 't' + n + ' ' }));
       lines.push(JSON.stringify({ event: 'agent.final_answer', in_seq }));
       process.stdout.write(lines.join('\\n') + '\\n');
     }`,
  );
  return `node ${script}`;
}
