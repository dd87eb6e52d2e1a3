#!/usr/bin/env node
/** The executable: runs `main()` on this process's arguments and exits with its code. */

import { main } from './main.ts';

// If a terminal was closed or a reader such as head has ended, output is lost but the run continues.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});

const code = await main(process.argv.slice(2));
// Dawn's threads would keep the process alive, so exit after the output is flushed.
process.stdout.write('', () => process.exit(code));
