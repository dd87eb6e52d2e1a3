#!/usr/bin/env node
/** The executable: `main()` on this process's arguments, whose exit code it ends with. */

import { main } from './main.ts';

// A terminal that was closed, or a reader such as head that has gone: what is printed is lost, the run is not.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});

const code = await main(process.argv.slice(2));
// Dawn's threads would keep the process alive; output is flushed first.
process.stdout.write('', () => process.exit(code));
