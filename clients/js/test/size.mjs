// The browser build (everything but the hook and the file storage, bundled and minified by esbuild) has
// at most 12 kB gzipped.

import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const LIMIT = 12_000;
const entry = new URL('../src/index.js', import.meta.url).pathname;
const { outputFiles } = await build({
  entryPoints: [entry],
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  write: false,
});
const bytes = gzipSync(outputFiles[0].contents, { level: 9 }).length;
console.log(`size: ${bytes} bytes bundled, minified and gzipped, of ${LIMIT}`);
if (bytes > LIMIT) process.exit(1);
