// A directory over HTTP, as `python3 -m http.server` would serve it.

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';

const KINDS = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };

/** @param {string} root @returns {Promise<{ url: string, end: () => void }>} */
export async function serve(root) {
  const server = createServer(async ({ url }, response) => {
    const { pathname } = new URL(url ?? '/', 'http://localhost');
    const path = join(root, normalize(pathname.endsWith('/') ? `${pathname}index.html` : pathname));
    try {
      const body = await readFile(path);
      response.writeHead(200, { 'content-type': KINDS[extname(path)] ?? 'application/octet-stream' }).end(body);
    } catch {
      response.writeHead(pathname === '/favicon.ico' ? 204 : 404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(null)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { url: `http://localhost:${port}`, end: () => void server.close() };
}
