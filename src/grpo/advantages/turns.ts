/** Credit per turn, for tasks that reward turns of a multi-turn sample apart. */

import { indicesByGroup, type GroupId } from './outcome.ts';

/**
 * Per-turn credit: return-to-go of each turn against the mean return-to-go, from the same turn on, of the OTHER samples
 * of the group. The baseline of turn j never looks at the sample's own actions, so the gradient stays unbiased; a sample
 * that ended before turn j counts with the return 0 it has from there on, so the baseline does not depend on who got far.
 * @param turnRewards one array a sample: the reward of each of its turns (an outcome counts in the last)
 * @returns same shapes; a group of one keeps its returns
 */
export function turnLeaveOneOut(
  turnRewards: readonly ArrayLike<number>[],
  groups: ArrayLike<GroupId>,
  gamma = 1,
): Float64Array[] {
  const returns = turnRewards.map((rewards) => {
    const out = Float64Array.from(rewards, (r) => (Number.isNaN(r) ? 0 : r));
    for (let j = out.length - 2; j >= 0; j--) out[j] += gamma * out[j + 1];
    return out;
  });
  const advantages = returns.map((r) => r.slice());
  const nobodyMissing = new Float64Array(groups.length);
  for (const indices of indicesByGroup(nobodyMissing, groups)) {
    if (indices.length < 2) continue;
    const turns = Math.max(...indices.map((i) => returns[i].length));
    for (let j = 0; j < turns; j++) {
      const total = indices.reduce((sum, i) => sum + (returns[i][j] ?? 0), 0);
      for (const i of indices) {
        if (j < returns[i].length) advantages[i][j] -= (total - returns[i][j]) / (indices.length - 1);
      }
    }
  }
  return advantages;
}

/**
 * Spreads per-turn advantages over tokens: every run of 1s in a mask is one turn.
 * @throws RangeError when a sample has more runs than turn advantages
 */
export function broadcastTurns(perTurn: readonly Float64Array[], masks: readonly ArrayLike<number>[]): Float64Array[] {
  return masks.map((mask, s) => {
    let turn = -1;
    return Float64Array.from(mask, (m, t) => {
      if (m === 0) return 0;
      if (t === 0 || mask[t - 1] === 0) turn++;
      if (turn >= perTurn[s].length) {
        throw new RangeError(
          `Sample ${s} has more trained turns than the ${perTurn[s].length} turn rewards it came with.`,
        );
      }
      return perTurn[s][turn];
    });
  });
}
