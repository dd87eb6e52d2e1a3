/** Prints the download sizes of page and library; fails if one is over its limit. A stage of `npm test`. */

import { join } from 'node:path';
import { checkSizes } from './lib/size.mjs';
import { ROOT } from './setup.mjs';

const { lines, ok } = await checkSizes({ library: join(ROOT, 'src/index.ts') });
process.stdout.write(`${lines.join('\n')}\n`);
if (!ok) process.exitCode = 1;
