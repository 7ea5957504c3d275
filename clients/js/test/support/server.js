// The real binary on its data, killed without warning and started again at the same address.

import { spawn } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const repository = fileURLToPath(new URL('../../../../', import.meta.url));

/** `REJOIN_BIN`, or what cargo has built. */
export function binary() {
  const target = process.env.CARGO_TARGET_DIR ?? join(repository, 'target');
  const path = process.env.REJOIN_BIN ?? join(target, 'debug', 'rejoin');
  if (!existsSync(path))
    throw new Error(`there is no ${path}: run "cargo build -p rejoin-cli", or set REJOIN_BIN`);
  return path;
}

/** An agent that answers each message with a burst of parts and an answer, and checks what it is told. */
export const AGENT = `sh ${join(repository, 'crates/cli/tests/chaos/agent.sh')}`;

export class Server {
  #flags;
  #directory = mkdtempSync(join(tmpdir(), 'rejoin-js-'));
  #child = null;

  /** Starts it; `end` it after the test. @param {string[]} flags */
  static async start(flags = ['--agent', AGENT]) {
    const server = new Server();
    server.#flags = flags;
    server.port = await freePort();
    await server.#run();
    return server;
  }

  get http() {
    return `http://127.0.0.1:${this.port}`;
  }

  get url() {
    return `ws://127.0.0.1:${this.port}/ws`;
  }

  get directory() {
    return this.#directory;
  }

  log() {
    return readFileSync(join(this.#directory, 'log'), 'utf8');
  }

  /** `kill -9`, and a new process on what the old one left. */
  async killAndRestart() {
    await this.kill();
    await this.#run();
  }

  async restart() {
    await this.#run();
  }

  async kill(signal = 'SIGKILL') {
    const child = this.#child;
    const exited = new Promise((resolve) => child.once('exit', resolve));
    child.kill(signal);
    await exited;
  }

  async end() {
    if (this.#child.exitCode === null && this.#child.signalCode === null) await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #run() {
    const log = openSync(join(this.#directory, 'log'), 'a');
    const flags = [
      'serve',
      '--listen',
      `127.0.0.1:${this.port}`,
      '--data-dir',
      join(this.#directory, 'data'),
      ...this.#flags,
    ];
    const env = Object.fromEntries(
      Object.entries(process.env).filter(([name]) => !name.startsWith('REJOIN_')),
    );
    this.#child = spawn(binary(), flags, { env, stdio: ['ignore', log, log] });
    closeSync(log);
    const deadline = Date.now() + 60_000;
    while (!(await listens(this.port))) {
      if (this.#child.exitCode !== null) throw new Error(`the server ended: ${this.log()}`);
      if (Date.now() > deadline) throw new Error(`the server does not listen: ${this.log()}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

function listens(port) {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => (socket.destroy(), resolve(true)));
    socket.on('error', () => resolve(false));
  });
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
