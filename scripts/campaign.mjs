/** `npm run campaign`: set-up, bundle, then campaign/main.ts. */

import { join } from 'node:path';
import { bundle } from './lib/bundle.mjs';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

try {
  const env = setup({ adapter: true });
  const folder = await bundle(ROOT);
  process.exitCode = await runNode(join(folder, 'campaign.js'), process.argv.slice(2), { env });
} catch (error) {
  exitOnSetupError(error);
}
