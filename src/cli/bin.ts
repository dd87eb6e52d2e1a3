#!/usr/bin/env node
/** The executable: runs `main()` on this process's arguments and exits with its code. */

import { writeSync } from 'node:fs';
import { unsettledCalls } from '../tasks/problem.ts';
import { main } from './main.ts';

// Node ends a process in which nothing runs any more, although `main` below has not returned: it waits for a promise of the user's code.
process.once('beforeExit', () => {
  const [call] = unsettledCalls;
  const { what = 'A function of your code', expected = 'Resolve or reject each of its promises' } = call ?? {};
  writeSync(2, `${what} waits for a promise that can never settle, because nothing runs any more. ${expected}.\n`);
  process.exit(2);
});

// The run continues without its output if the terminal was closed, or if the reader of a pipe (such as head) has ended.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});

const code = await main(process.argv.slice(2));
// Dawn's threads would keep the process alive, so exit explicitly once the output is flushed.
process.stdout.write('', () => process.exit(code));
