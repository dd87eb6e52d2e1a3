/** The command line from a checkout: set-up, bundle, run. `npm run -s webgrpo -- <command>`. */

import { join } from 'node:path';
import { bundle } from './lib/bundle.mjs';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** Commands that never touch a GPU must work without one. */
const WITHOUT_GPU = ['config', 'report', 'profile', 'export', 'help', '--help', '-h', '--version', undefined];

function needsGpu([command, what, ...rest]) {
  if (WITHOUT_GPU.includes(command) || [what, ...rest].includes('--help')) return false;
  return !(command === 'verify' && what === 'losses');
}

const args = process.argv.slice(2);
const cwd = process.cwd();
try {
  const env = setup({ adapter: needsGpu(args) });
  const folder = await bundle(ROOT);
  process.exitCode = await runNode(join(folder, 'main.js'), args, { env, cwd });
} catch (error) {
  exitOnSetupError(error);
}
