#!/usr/bin/env node
/** The executable: runs `main()` on this process's arguments and exits with its code. */

import { main } from './main.ts';

// The run continues without its output if the terminal was closed, or if the reader of a pipe (such as head) has ended.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});

const code = await main(process.argv.slice(2));
// Dawn's threads would keep the process alive, so exit explicitly once the output is flushed.
process.stdout.write('', () => process.exit(code));
