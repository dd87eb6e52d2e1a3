/**
 * `node scripts/bench-verification.mjs`: measures how often an honest worker is refused, on the same adapter and on another one, and how
 * many forgeries are accepted. Worker and verifier are processes, each on one driver: SwiftShader, and lavapipe if it is installed. Prints
 * JSON.
 *   --samples N     honest samples of each worker (default 1000: some 50,000 tokens)
 *   --forgeries N   of each kind (default 1000)
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { bundle } from './lib/bundle.mjs';
import { lavapipe } from './lib/lavapipe.mjs';
import { howToInstall } from './lib/requirements.mjs';
import { exitOnSetupError, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const { values } = parseArgs({
  options: { samples: { type: 'string', default: '1000' }, forgeries: { type: 'string', default: '1000' } },
});

try {
  const own = setup({ adapter: true });
  const other = lavapipe();
  if (!other) say(`lavapipe: not found, so only one adapter is measured. To install it: ${howToInstall('lavapipe')}`);
  const program = join(await bundle(ROOT), 'bench-verification.js');
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-verification-'));
  const run = (/** @type {Record<string, string>} */ env, /** @type {string[]} */ ...args) => {
    const options = { env: { ...process.env, ...env }, maxBuffer: 2 ** 26, encoding: /** @type {const} */ ('utf8') };
    const { status, signal, stdout } = spawnSync(process.execPath, ['--no-warnings', program, ...args], {
      ...options,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    if (status !== 0) throw new SetupError(`bench/verification.ts ended with code ${status ?? signal}.`, 1);
    return stdout;
  };
  const adapters = [own, ...(other ? [other] : [])];
  const results = [];
  for (const [w, worker] of adapters.entries()) {
    const file = join(folder, `${w}.jsonl`);
    // The forgeries of one worker suffice, because all workers use the same code.
    const forgeries = w === 0 ? values.forgeries : '0';
    run(worker, '--write', file, '--samples', values.samples, '--forgeries', forgeries);
    for (const [v, verifier] of adapters.entries())
      results.push({ worker: w, verifier: v, ...JSON.parse(run(verifier, '--read', file)) });
  }
  rmSync(folder, { recursive: true });
  process.stdout.write(`${JSON.stringify(results, null, 2)}\n`);
} catch (error) {
  exitOnSetupError(error);
}
