/** Mesa's software driver, the second one that kernels are tested on: its subgroups have 8 threads, and it has 16-bit floats. */

import { existsSync } from 'node:fs';
import { probe } from './adapter.mjs';

const PLACES = ['/usr/share/vulkan/icd.d', '/usr/local/share/vulkan/icd.d', '/etc/vulkan/icd.d'];
const NAMES = ['lvp_icd.json', 'lvp_icd.x86_64.json', 'lvp_icd.aarch64.json'];

export const LAVAPIPE_MISSING =
  'not installed, or older than Dawn takes (Mesa 25 is known to work); on Debian 12: ' +
  'apt-get install -t bookworm-backports mesa-vulkan-drivers, or set LAVAPIPE_ICD to its lvp_icd.json';

/** The environment that selects lavapipe; undefined where it is not installed or Dawn refuses it. */
export function lavapipe() {
  const asked = process.env.LAVAPIPE_ICD;
  const places = asked ? [asked] : PLACES.flatMap((folder) => NAMES.map((name) => `${folder}/${name}`));
  const icd = places.find((path) => existsSync(path));
  if (!icd) return undefined;
  const env = { VK_ICD_FILENAMES: icd };
  return /llvmpipe|lavapipe/i.test(probe(env)?.name ?? '') ? env : undefined;
}
