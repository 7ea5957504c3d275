// A network between client and server that a test can break.

import { connect, createServer } from 'node:net';

export class Proxy {
  #server;
  #links = new Set();
  /** What becomes of a new connection: it passes, is refused, or is reset after so many milliseconds. */
  weather = /** @type {{ refuse?: boolean, resetAfter?: () => number, hold?: boolean }} */ ({});
  connections = 0;

  static async start(port) {
    const proxy = new Proxy();
    proxy.#server = createServer((client) => proxy.#carry(client, port));
    await new Promise((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    proxy.url = `ws://127.0.0.1:${proxy.#server.address().port}/ws`;
    return proxy;
  }

  /** Resets every connection there is. */
  reset() {
    for (const link of [...this.#links]) link();
  }

  async end() {
    this.#server.close();
    this.reset();
  }

  #carry(client, port) {
    this.connections += 1;
    client.on('error', () => {});
    if (this.weather.refuse) return client.resetAndDestroy();
    const server = connect(port, '127.0.0.1');
    const link = () => {
      this.#links.delete(link);
      clearTimeout(timer);
      client.resetAndDestroy();
      server.resetAndDestroy();
    };
    this.#links.add(link);
    const timer = this.weather.resetAfter && setTimeout(link, this.weather.resetAfter());
    const pass = (from, to) => {
      from.on('data', (bytes) => this.weather.hold || to.write(bytes)); // held: half-open, nothing arrives
      from.on('error', link);
      from.on('close', link);
    };
    pass(client, server);
    pass(server, client);
  }
}
