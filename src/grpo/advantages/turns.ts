/** Credit per turn, for tasks that reward the turns of a multi-turn sample separately. */

import { indicesByGroup, type GroupId } from './outcome.ts';

/**
 * Return-to-go of each turn minus a baseline from the OTHER samples of the group (leave-one-out):
 *
 *   A_ij = R_ij - b_ij,   R_ij = r_ij + gamma R_i,j+1,   b_ij = mean of R_kj over the k != i that reached turn j,
 *   or the mean of their full returns R_k0 if none did
 *
 * The baseline does not depend on the sample itself, so the gradient stays unbiased however many turns each sample has.
 * @param turnRewards one array per sample: the reward of each of its turns (an outcome is in the last one); NaN = 0
 * @returns advantages in the same shape; in a group of one they are the returns
 */
export function turnLeaveOneOut(
  turnRewards: readonly ArrayLike<number>[],
  groups: ArrayLike<GroupId>,
  gamma = 1,
): Float64Array[] {
  const returns = turnRewards.map((rewards) => returnsToGo(rewards, gamma));
  const advantages = returns.map((r) => r.slice());
  for (const members of indicesByGroup(new Float64Array(groups.length), groups)) {
    for (const i of members) {
      const others = members.filter((k) => k !== i && returns[k].length > 0).map((k) => returns[k]);
      if (others.length > 0) advantages[i].forEach((r, j) => (advantages[i][j] = r - baseline(others, j)));
    }
  }
  return advantages;
}

function returnsToGo(rewards: ArrayLike<number>, gamma: number): Float64Array {
  const out = Float64Array.from(rewards, (r) => (Number.isNaN(r) ? 0 : r));
  for (let j = out.length - 2; j >= 0; j--) out[j] += gamma * out[j + 1];
  return out;
}

function baseline(others: readonly Float64Array[], turn: number): number {
  const there = others.filter((r) => r.length > turn).map((r) => r[turn]);
  const values = there.length > 0 ? there : others.map((r) => r[0]);
  return values.reduce((a, b) => a + b, 0) / values.length;
}

/**
 * Index of each token's turn: every run of 1s in the sampled mask is one turn; -1 if the policy did not sample the token. Do not pass a
 * mask from which rollout correction has removed rejected tokens: a rejected token can split a turn or remove it.
 */
export function turnIndices(sampled: ArrayLike<number>): Int32Array {
  let turn = -1;
  return Int32Array.from(sampled, (m, t) => {
    if (m === 0) return -1;
    if (t === 0 || sampled[t - 1] === 0) turn++;
    return turn;
  });
}

/** Number of turns in a sample's mask of sampled tokens. */
export const turnCount = (sampled: ArrayLike<number>): number =>
  turnIndices(sampled).reduce((most, turn) => Math.max(most, turn), -1) + 1;

/**
 * Spreads per-turn advantages over the trained tokens.
 * @param masks one array per sample, 1 = trained token
 * @param sampled masks before rollout correction rejects tokens; turns are counted in these
 * @throws RangeError if a trained token's turn has no advantage
 */
export function broadcastTurns(
  perTurn: readonly Float64Array[],
  masks: readonly ArrayLike<number>[],
  sampled = masks,
): Float64Array[] {
  return masks.map((mask, s) => {
    const turns = turnIndices(sampled[s]);
    return Float64Array.from(mask, (m, t) => {
      if (m === 0) return 0;
      if (turns[t] < perTurn[s].length) return perTurn[s][turns[t]];
      throw new RangeError(
        `Sample ${s} has more trained turns than the ${perTurn[s].length} turn rewards it came with.`,
      );
    });
  });
}
