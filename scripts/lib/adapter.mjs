/**
 * Selects the Vulkan driver that Dawn uses in Node: the user's choice, otherwise a hardware GPU, otherwise the SwiftShader of a Chromium.
 * The result is an environment, because drivers read theirs when the process starts.
 */

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { mayHaveGpu, swiftShaderBeside } from '../../src/cli/chromium.mjs';
import { ensureChromium } from './chromium.mjs';
import { howToInstall } from './requirements.mjs';
import { say, SetupError } from './say.mjs';

const PROBE = fileURLToPath(new URL('probe.mjs', import.meta.url));

/**
 * An adapter that Dawn finds. `env` has the variables to start Dawn with; `icd` is the path of the Vulkan driver that they name ('' = Dawn's
 * default).
 * @typedef {{ name: string, software: boolean, env: Record<string, string>, icd: string }} Adapter
 */

/**
 * Returns the adapter. Throws SetupError if none is available.
 * @returns {Adapter}
 */
export function findAdapter() {
  const chosen = process.env.VK_ICD_FILENAMES;
  const found = probe({});
  if (chosen) {
    if (found) return { ...found, env: {}, icd: chosen };
    throw new SetupError(
      `VK_ICD_FILENAMES is "${chosen}", but Dawn finds no adapter through it. Correct it, or unset it to let set-up choose.`,
    );
  }
  if (found && !found.software) return { ...found, env: {}, icd: '' };
  return swiftShader() ?? (found ? { ...found, env: {}, icd: '' } : noAdapter());
}

/** @returns {never} */
function noAdapter() {
  throw new SetupError(
    'No WebGPU adapter: no hardware GPU with a Vulkan, Metal or D3D12 driver, and no software driver beside a Chromium. ' +
      `To get one: ${howToInstall('adapter')}; or set VK_ICD_FILENAMES to a Vulkan driver.`,
    1,
  );
}

function swiftShader() {
  if (process.platform !== 'linux') return undefined;
  const icd = swiftShaderBeside(ensureChromium());
  if (!icd) return undefined;
  const driver = { VK_ICD_FILENAMES: icd };
  // A machine without its own Vulkan loader can use Chromium's.
  const libraries = [dirname(icd), process.env.LD_LIBRARY_PATH].filter(Boolean).join(delimiter);
  const withLoader = { ...driver, LD_LIBRARY_PATH: libraries };
  for (const env of [driver, withLoader]) {
    const found = probe(env);
    if (found) return { ...found, env, icd };
  }
  say(`adapter: ${join(icd)} is there, but Dawn cannot use it`);
  return undefined;
}

/**
 * Returns the adapter that Dawn finds with these variables; null if Dawn finds nothing.
 * @param {Record<string, string>} env
 * @returns {Pick<Adapter, 'name' | 'software'> | null}
 */
export function probe(env) {
  const { stdout, status } = spawnSync(process.execPath, [PROBE], {
    env: { ...process.env, ...env },
    encoding: 'utf8',
    timeout: 60_000,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  if (status !== 0) return null;
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
}

/**
 * True if an adapter that was stored by an earlier start is still the one to use: its driver files are there, and no GPU or its driver was
 * added to a machine that had none.
 * @param {Adapter} adapter
 */
export function stillThere({ icd, software }) {
  if (software && !process.env.VK_ICD_FILENAMES && mayHaveGpu(process.env)) return false;
  return icd === '' || icd.split(delimiter).every((path) => existsSync(path));
}
