/** `npm run bench`: set-up, bundle, then bench/main.ts. */

import { join } from 'node:path';
import { bundle } from './lib/bundle.mjs';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

try {
  const env = setup({ adapter: true });
  const folder = await bundle(ROOT);
  process.exitCode = await runNode(join(folder, 'bench.js'), process.argv.slice(2), { env });
} catch (error) {
  exitOnSetupError(error);
}
