// The package contains what users need and nothing else, and no module needs anything but its own kind.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

const home = new URL('../', import.meta.url);
const sources = readdirSync(new URL('src/', home));
const expected = [
  'LICENSE-APACHE',
  'LICENSE-MIT',
  'README.md',
  'package.json',
  ...sources.map((name) => `src/${name}`),
  ...sources.map((name) => `types/${name.replace(/js$/, 'd.ts')}`),
];
const [{ files, size }] = JSON.parse(
  execFileSync('npm', ['pack', '--dry-run', '--json', '--loglevel=error'], {
    cwd: home,
    encoding: 'utf8',
  }).replace(/^[^[]*/, ''),
);
assert.deepEqual(files.map(({ path }) => path).sort(), expected.sort());
console.log(`pack: ${files.length} files, ${size} bytes`);

const foreign = { 'react.js': ['react'], 'file.js': ['node:fs/promises'] };
for (const name of sources) {
  const text = readFileSync(new URL(`src/${name}`, home), 'utf8');
  const imported = [...text.matchAll(/^(?:import|export) .*from '([^']+)';$/gm)].map(([, from]) => from);
  assert.deepEqual(
    imported.filter((from) => !from.startsWith('./')),
    foreign[name] ?? [],
    name,
  );
}
