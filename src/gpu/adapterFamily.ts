/** Kinds of adapters, for kernels that have one variant per kind. */

import type { AdapterSummary } from './device.ts';

/**
 * Kind of an adapter:
 * - four, eight: software adapters whose subgroups all have 4 lanes (SwiftShader) or 8 (lavapipe). Their registers spill to a stack, so
 *   tiles are large, and the lanes of a subgroup share their loads.
 * - wide: hardware GPUs, whose subgroups have 8 lanes or more.
 * - none: adapters without subgroups, or hardware with smaller ones (older phones), whose registers do not hold a large tile.
 */
export type AdapterFamily = 'four' | 'eight' | 'wide' | 'none';

type AdapterTraits = Pick<AdapterSummary, 'isSoftware' | 'subgroupSize' | 'subgroupMaxSize'>;

/** Returns the family of an adapter. */
export function adapterFamily({ isSoftware, subgroupSize, subgroupMaxSize }: AdapterTraits): AdapterFamily {
  const size = subgroupSize === subgroupMaxSize ? subgroupSize : undefined; // the size of every subgroup
  if (isSoftware && size === 4) return 'four';
  if (isSoftware && size === 8) return 'eight';
  return subgroupSize >= 8 ? 'wide' : 'none';
}

/** Number of lanes of a subgroup that share their loads and exchange the loaded values; 0 = none. */
export const sharingLanes = (adapter: AdapterTraits): 0 | 4 | 8 => SHARING[adapterFamily(adapter)];
const SHARING = { four: 4, eight: 8, wide: 0, none: 0 } as const;
