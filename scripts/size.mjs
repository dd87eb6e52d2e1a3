/** Prints the size of the library; fails over the limit. A stage of `npm test`. */

import { join } from 'node:path';
import { checkSize } from './lib/size.mjs';
import { ROOT } from './setup.mjs';

const { line, ok } = await checkSize(join(ROOT, 'src/index.ts'));
process.stdout.write(`${line}\n`);
if (!ok) process.exitCode = 1;
