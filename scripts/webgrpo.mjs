/** The command line from a checkout: set-up, bundle, run. `npm run -s webgrpo -- <command>`. */

import { join } from 'node:path';
import { bundle } from './lib/bundle.mjs';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** Commands that never use a GPU. They must work on a machine without one. */
const WITHOUT_GPU = [
  'config',
  'init',
  'report',
  'doctor',
  'profile',
  'export',
  'help',
  '--help',
  '-h',
  '--version',
  '-V',
  undefined,
];

/** @param {string[]} args */
function needsGpu([command, ...rest]) {
  if (WITHOUT_GPU.includes(command) || rest.includes('--help')) return false;
  return !(command === 'verify' && rest[0] === 'losses');
}

const args = process.argv.slice(2);
const cwd = process.cwd();
try {
  const command = process.env.npm_lifecycle_event ? 'npm run -s webgrpo --' : 'node scripts/webgrpo.mjs';
  const env = {
    ...setup({ dev: false, adapter: needsGpu(args) }),
    WEBGRPO_STARTED_AS: command,
    WEBGRPO_CHECKOUT: ROOT,
  };
  const folder = await bundle(ROOT);
  process.exitCode = await runNode(join(folder, 'bin.js'), args, { env, cwd });
} catch (error) {
  exitOnSetupError(error);
}
