// An agent that answers, and dies when it is told to.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterwards } from './afterwards.js';

/** What the agent writes to standard error before it dies. */
export const LAST_WORDS = ['Traceback (most recent call last):', '  <script>alert(1)</script>', 'Error: told to die'];

/** The command of an agent that answers each message with a thought and an answer, and stores how many it has answered.
 *  Told to die it does, the first time that it is told.
 *  @param {{ after: (end: () => void) => void }} t */
export function mortal(t) {
  const directory = mkdtempSync(join(tmpdir(), 'rejoin-mortal-'));
  afterwards(t, async () => rmSync(directory, { recursive: true, force: true }));
  const script = join(directory, 'mortal.mjs');
  writeFileSync(
    script,
    `import { existsSync, writeFileSync } from 'node:fs';
     import { createInterface } from 'node:readline';
     let answered = 0;
     const say = (event) => console.log(JSON.stringify(event));
     for await (const line of createInterface(process.stdin)) {
       const { event, content, in_seq } = JSON.parse(line);
       if (event === 'session.start') {
         answered = content.state?.answered ?? 0;
         say({ event: 'session.state', content: content.state, in_seq: content.in_seq }); // it names entries
       }
       if (event !== 'user.message') continue;
       const mark = ${JSON.stringify(directory)} + '/' + in_seq;
       if (content === 'die' && !existsSync(mark)) {
         writeFileSync(mark, '');
         console.error(${JSON.stringify(LAST_WORDS.join('\n'))});
         process.exit(3);
       }
       if (content === 'say nothing') {
         say({ event: 'session.state', content: { quiet: true }, in_seq });
         continue;
       }
       answered += 1;
       say({ event: 'agent.thinking', content: 'about ' + content });
       say({ event: 'agent.final_answer', content: 'answer to ' + content, in_seq, state: { answered, last: content } });
     }`,
  );
  return `node ${script}`;
}
