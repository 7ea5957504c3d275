// The ten lines of the README, against the real binary, with its connection cut and the server killed.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { it } from 'node:test';

import { Server } from '../support/server.js';

const home = fileURLToPath(new URL('../../', import.meta.url));

it(
  'the ten lines of the README work, and the answer goes on when the server is killed',
  { timeout: 120_000 },
  async (t) => {
    const server = await Server.start([]);
    t.after(() => server.end());
    const [, code] = readFileSync(join(home, 'README.md'), 'utf8').match(/```js [^\n]*\n(.*?)```/s);
    const program = code
      .replace('ws://127.0.0.1:8181/ws', server.url)
      .replace("'session.json'", JSON.stringify(join(server.directory, 'session.json')));
    assert.notEqual(program, code);
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { cwd: home });
    t.after(() => child.kill());
    let [shown, killed, errors] = ['', false, ''];
    child.stderr.on('data', (text) => (errors += text));
    child.stdout.on('data', (text) => {
      shown += text;
      if (!killed && shown.includes('agent.thinking')) {
        killed = true;
        void server.killAndRestart();
      }
    });
    const exit = await new Promise((resolve) => child.once('close', resolve));
    assert.equal(exit, 0, errors);
    assert.match(errors, /connection_lost/);
    const pieces = [...shown.matchAll(/^agent\.answer_delta (.*)$/gm)].map(([, piece]) => piece);
    const [, answer] = shown.match(/^agent\.final_answer (.*)$/m);
    assert.equal(pieces.join(''), answer, 'no piece is missing and none is there twice');
  },
);
