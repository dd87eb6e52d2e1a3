/**
 * Token-level estimators: advantages are whitened over the batch, or computed from rewards of single tokens. Arrays are
 * one per sample; in `masks`, 1 = trained token.
 */

import { grpo, type GroupId, type ScaleRewards } from './outcome.ts';

/**
 * Returns one value per token: the sample's value where the mask is 1, 0 elsewhere.
 * @param masks one array per sample, 1 = trained token
 */
export function broadcast(perSample: ArrayLike<number>, masks: readonly ArrayLike<number>[]): Float64Array[] {
  return masks.map((mask, s) => Float64Array.from(mask, (m) => (m === 0 ? 0 : m * perSample[s])));
}

/**
 * Returns (x - mean) / sqrt(var + 1e-8) over the trained tokens of all samples (unbiased variance), 0 for all other
 * tokens. With fewer than two trained tokens the variance is undefined, and every value is 0.
 */
export function whiten(values: readonly Float64Array[], masks: readonly ArrayLike<number>[]): Float64Array[] {
  const over = (f: (x: number) => number): number => {
    let total = 0;
    values.forEach((v, s) => v.forEach((x, t) => (total += masks[s][t] === 0 ? 0 : masks[s][t] * f(x))));
    return total;
  };
  const count = masks.reduce((n, mask) => n + Array.from(mask).reduce((a, b) => a + b, 0), 0);
  if (count <= 1) return values.map((v) => new Float64Array(v.length));
  const center = over((x) => x) / (count + 1e-8);
  const variance = ((over((x) => (x - center) ** 2) / (count + 1e-8)) * count) / (count - 1);
  const scale = 1 / Math.sqrt(variance + 1e-8);
  return values.map((v, s) => v.map((x, t) => (masks[s][t] === 0 ? 0 : (x - center) * scale * masks[s][t])));
}

/** REINFORCE++ with a group baseline (arXiv:2501.03262): r - mean_group on every token, whitened over the batch. */
export function reinforcePlusPlusBaseline(
  rewards: ArrayLike<number>,
  groups: ArrayLike<GroupId>,
  masks: readonly ArrayLike<number>[],
): Float64Array[] {
  const centered = grpo(rewards, groups, 'none');
  return whiten(broadcast(centered, masks), maskMissing(rewards, masks));
}

/** Returns the masks with those of samples without a reward set to 0. */
export function maskMissing(rewards: ArrayLike<number>, masks: readonly ArrayLike<number>[]): ArrayLike<number>[] {
  return masks.map((mask, s) => (Number.isNaN(rewards[s]) ? new Float64Array(mask.length) : mask));
}

/**
 * REINFORCE++ (arXiv:2501.03262): discounted return-to-go over the trained tokens, whitened over the batch. Tool tokens
 * leave the running return unchanged.
 * @param tokenRewards reward of each token; an outcome reward is on the last sampled token (`outcomeRewards`)
 * @param sampled masks before rollout correction rejects tokens; returns are summed over these
 */
export function reinforcePlusPlus(
  tokenRewards: readonly Float64Array[],
  masks: readonly ArrayLike<number>[],
  gamma = 1,
  sampled = masks,
): Float64Array[] {
  const returns = tokenRewards.map((rewards, s) => {
    const out = new Float64Array(rewards.length);
    let running = 0;
    for (let t = rewards.length - 1; t >= 0; t--) {
      const next = rewards[t] + gamma * running;
      out[t] = next * sampled[s][t];
      running = next * sampled[s][t] + running * (1 - sampled[s][t]);
    }
    return out;
  });
  return whiten(returns, masks);
}

/**
 * ReMax (arXiv:2310.10505): return-to-go minus the reward of a greedy answer to the same prompt. As in verl, a token in
 * the middle whose mask is 0 keeps the return, without the baseline; no loss reads that value. A missing baseline (NaN)
 * is 0.
 */
export function remax(
  tokenRewards: readonly Float64Array[],
  masks: readonly ArrayLike<number>[],
  baselines: ArrayLike<number>,
): Float64Array[] {
  return tokenRewards.map((rewards, s) => {
    const out = new Float64Array(rewards.length);
    let running = 0;
    for (let t = rewards.length - 1; t >= 0; t--) {
      running += masks[s][t] === 0 ? 0 : rewards[t] * masks[s][t];
      out[t] = running - (Number.isNaN(baselines[s]) ? 0 : baselines[s]) * masks[s][t];
    }
    return out;
  });
}

/**
 * Returns token rewards for outcomes: the full reward on the last trained token of each sample, 0 if the reward is
 * missing.
 */
export function outcomeRewards(rewards: ArrayLike<number>, masks: readonly ArrayLike<number>[]): Float64Array[] {
  return masks.map((mask, s) => {
    const out = new Float64Array(mask.length);
    const last = Array.from(mask).lastIndexOf(1);
    if (last >= 0 && !Number.isNaN(rewards[s])) out[last] = rewards[s];
    return out;
  });
}

/**
 * GDPO (arXiv:2601.05242): each reward is normalised within its group, then the weighted sum is whitened over the
 * batch, so that one large reward cannot hide the others.
 * @param components [K][N] one array of sample rewards per reward function
 * @param weights [K]; default: all 1
 */
export function gdpo(
  components: readonly ArrayLike<number>[],
  groups: ArrayLike<GroupId>,
  masks: readonly ArrayLike<number>[],
  weights?: readonly number[],
  scale: ScaleRewards = 'group',
): Float64Array[] {
  const total = new Float64Array(groups.length);
  components.forEach((rewards, k) => {
    grpo(rewards, groups, scale).forEach((a, i) => (total[i] += (weights?.[k] ?? 1) * a));
  });
  return whiten(broadcast(total, masks), masks);
}
