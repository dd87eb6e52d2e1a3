/** Kind of an adapter, for kernels that have one variant per kind. */

import type { AdapterSummary } from './device.ts';

/**
 * four, eight   software adapters whose subgroups are all of 4 (SwiftShader) or of 8 (lavapipe): their registers spill
 * to a stack, so tiles are large, and the lanes of a subgroup load together wide          subgroups of 8 lanes and
 * more: hardware GPUs none          no subgroups, or smaller ones on hardware (older phones), whose registers do not
 * hold a large tile
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

/** Number of lanes that load together and exchange the loaded values. */
export const sharingLanes = (adapter: AdapterTraits): 0 | 4 | 8 => SHARING[adapterFamily(adapter)];
const SHARING = { four: 4, eight: 8, wide: 0, none: 0 } as const;
