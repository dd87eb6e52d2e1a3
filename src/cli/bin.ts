#!/usr/bin/env node
/** The executable: runs `main()` on this process's arguments and exits with its code. */

import { writeSync } from 'node:fs';
import { unsettledCalls } from '../tasks/problem.ts';
import { main } from './main.ts';

let isRunning = true;

// A user's code can call `process.exit`, which would end the command without a word and perhaps with the code 0.
process.on('exit', (code) => {
  const signalCode = 128; // `endBy` emits 'exit' with a code above it
  if (!isRunning || code > signalCode) return;
  const [, caller = 'a module'] = /\bprocess\.exit .*\n\s+at (.*)/.exec(new Error().stack ?? '') ?? [];
  const command = process.argv[2];
  writeSync(
    2,
    `process.exit(${code}) was called while "webgrpo ${command}" was running, by ${caller}. Throw an error instead: the command then reports it and closes its run.\n`,
  );
  process.exitCode = 2;
});
// Node prints an uncaught error itself.
process.on('uncaughtExceptionMonitor', () => {
  isRunning = false;
});

// Node ends a process in which nothing runs any more, although `main` below has not returned: it waits for a promise of the user's code.
process.once('beforeExit', () => {
  const [call] = unsettledCalls;
  const { what = 'A function of your code', expected = 'Resolve or reject each of its promises' } = call ?? {};
  isRunning = false;
  writeSync(2, `${what} waits for a promise that can never settle, because nothing runs any more. ${expected}.\n`);
  process.exit(2);
});

// The run continues without its output if the terminal was closed, or if the reader of a pipe (such as head) has ended. Any other failure,
// such as a full disk, loses a result that was asked for.
let lost: NodeJS.ErrnoException | undefined;
process.stderr.on('error', () => {});
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (!['EPIPE', 'EIO', 'EOF', 'ECONNRESET'].includes(error.code ?? '')) lost ??= error;
});

const code = await main(process.argv.slice(2));
isRunning = false;
// Dawn's threads would keep the process alive, so exit explicitly once the output is flushed.
// The event of a failed write comes after the callback of the write.
process.stdout.write('', () =>
  setImmediate(() => {
    if (lost) writeSync(2, `The output could not be written: ${lost.message}. Free space, or write it elsewhere.\n`);
    process.exit(lost ? 1 : code);
  }),
);
