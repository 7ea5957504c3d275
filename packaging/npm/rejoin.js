#!/usr/bin/env node
// Starts the binary that came with the package of this platform. Nothing is downloaded.
//
// Where Node can (22.15 and newer), this process becomes the binary. Otherwise, and always under npx, the binary is a
// child: it gets this process's standard streams and signals, and its exit code is passed on. npx that is told to stop
// ends without telling what it has started, which would leave a server behind that holds port and files; the launcher
// therefore stops the server when npx is gone.
'use strict';

const { spawn } = require('node:child_process');
const os = require('node:os');

function binary() {
  const name = `rejoin-${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/bin/rejoin`);
  } catch {
    console.error(`rejoin: the package ${name} is not installed.`);
    console.error('Either there is no binary for this platform (cargo install rejoin-cli builds one), or optional');
    console.error('dependencies were left out (--omit=optional); install again without that.');
    process.exit(1);
  }
}

function become(file, args) {
  process.removeAllListeners('warning'); // execve is marked experimental; users cannot act on that
  process.execve(file, [file, ...args], process.env);
}

function run(file, args) {
  const child = spawn(file, args, { stdio: 'inherit' });
  child.on('error', (error) => {
    console.error(`rejoin: ${file} could not be started: ${error.message}`);
    process.exit(1);
  });
  child.on('exit', (code, signal) => process.exit(code ?? 128 + os.constants.signals[signal]));
  let stopping = false; // a second signal would stop the server without draining
  const stop = (signal) => {
    stopping = true;
    child.kill(signal);
  };
  process.on('SIGTERM', stop);
  process.on('SIGHUP', () => child.kill('SIGHUP')); // the server reads its settings again
  // Ctrl-C in a terminal reaches the child by itself.
  const inTerminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
  process.on('SIGINT', (signal) => (inTerminal ? (stopping = true) : stop(signal)));
  if (underNpm) whenParentIsGone(() => stopping || stop('SIGTERM'));
}

function whenParentIsGone(call) {
  const parent = process.ppid;
  const look = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(look);
    call();
  }, 500);
}

const underNpm = process.env.npm_command !== undefined;
const start = typeof process.execve === 'function' && !underNpm ? become : run;
start(binary(), process.argv.slice(2));
