/**
 * Finds or installs lavapipe, Mesa's software driver. It is the second driver that kernels are tested on: its subgroups have 8 threads, and
 * it supports 16-bit floats.
 */

import { existsSync } from 'node:fs';
import { probe } from './adapter.mjs';
import { aptInstall, aptInstallFromBackports } from './apt.mjs';
import { say } from './say.mjs';
import { thisSystem } from './requirements.mjs';

const PLACES = ['/usr/share/vulkan/icd.d', '/usr/local/share/vulkan/icd.d', '/etc/vulkan/icd.d'];
const NAMES = ['lvp_icd.json', 'lvp_icd.x86_64.json', 'lvp_icd.aarch64.json'];

/**
 * Returns the environment that selects lavapipe, or undefined if it is missing or too old for Dawn (Mesa 25 is known to work).
 * @returns {Record<string, string> | undefined}
 */
export function lavapipe() {
  const chosen = process.env.LAVAPIPE_ICD;
  const places = chosen ? [chosen] : PLACES.flatMap((folder) => NAMES.map((name) => `${folder}/${name}`));
  const icd = places.find((path) => existsSync(path));
  if (!icd) return undefined;
  const env = { VK_ICD_FILENAMES: icd };
  return /llvmpipe|lavapipe/i.test(probe(env)?.name ?? '') ? env : undefined;
}

/** Like the function `lavapipe`, but installs the driver if apt-get can: from the distribution, otherwise from Debian 12's backports. */
export function ensureLavapipe({ hasApt } = thisSystem()) {
  const found = lavapipe();
  if (found || !hasApt) return found;
  say('lavapipe: not installed, or too old; installing it with apt-get');
  return (
    (aptInstallFromBackports('mesa-vulkan-drivers') && lavapipe()) ||
    (aptInstall('mesa-vulkan-drivers') && lavapipe()) ||
    undefined
  );
}
