/** `npm run demo`: set-up, then Vite's server for the page. Additional arguments go to Vite. */

import { join } from 'node:path';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

try {
  setup({ dev: false });
  const vite = join(ROOT, 'node_modules', 'vite', 'bin', 'vite.js');
  process.exitCode = await runNode(vite, process.argv.slice(2));
} catch (error) {
  exitOnSetupError(error);
}
