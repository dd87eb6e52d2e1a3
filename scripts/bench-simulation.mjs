/**
 * `node scripts/bench-simulation.mjs`: compares the simulation's predictions with measured times of pipelines and rooms. See
 * bench/simulation.ts.
 */

import { join } from 'node:path';
import { bundle } from './lib/bundle.mjs';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

try {
  const env = setup({ adapter: true });
  const folder = await bundle(ROOT);
  process.exitCode = await runNode(join(folder, 'bench-simulation.js'), process.argv.slice(2), { env, cwd: ROOT });
} catch (error) {
  exitOnSetupError(error);
}
