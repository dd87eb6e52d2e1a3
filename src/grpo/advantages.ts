/**
 * Advantages: how much better a sample (or one of its tokens) did than expected, without a value network.
 *
 * Outcome estimators map the rewards of a step's samples, grouped by prompt, to one number a sample. NaN = no reward
 * (scoring failed or does not apply): such a sample takes no part in its group's statistics and gets advantage 0.
 * Names and constants are verl's; standard deviations are unbiased (n - 1).
 */

export type GroupId = number | string;

/** Added to a standard deviation before dividing by it. */
const EPSILON = 1e-6;

/** Sample indices by group, in order of first appearance; samples without a reward are left out. */
export function indicesByGroup(rewards: ArrayLike<number>, groups: ArrayLike<GroupId>): number[][] {
  if (rewards.length !== groups.length) {
    throw new RangeError(
      `${rewards.length} rewards came with ${groups.length} group ids; each sample needs one of both.`,
    );
  }
  const members = new Map<GroupId, number[]>();
  for (let i = 0; i < groups.length; i++) {
    if (!members.has(groups[i])) members.set(groups[i], []);
    if (!Number.isNaN(rewards[i])) members.get(groups[i])?.push(i);
  }
  return [...members.values()].filter((indices) => indices.length > 0);
}

export const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

/** Unbiased standard deviation; 0 for fewer than two values. */
export function std(values: readonly number[]): number {
  if (values.length < 2) return 0;
  const center = mean(values);
  return Math.sqrt(values.reduce((total, v) => total + (v - center) ** 2, 0) / (values.length - 1));
}

type GroupRule = (rewards: number[], indices: number[]) => number[];

/** Applies `rule` to each group; samples without a reward keep 0. */
function perGroup(rewards: ArrayLike<number>, groups: ArrayLike<GroupId>, rule: GroupRule): Float64Array {
  const advantages = new Float64Array(rewards.length);
  for (const indices of indicesByGroup(rewards, groups)) {
    const values = rule(
      indices.map((i) => rewards[i]),
      indices,
    );
    indices.forEach((i, k) => (advantages[i] = values[k]));
  }
  return advantages;
}

/** How `grpo` scales: by the group's std, by that of the whole batch (TRL's scale_rewards), or not (Dr. GRPO). */
export type ScaleRewards = 'group' | 'batch' | 'none';

/**
 * GRPO (arXiv:2402.03300): A = (r - mean_group) / (std_group + 1e-6). 'none' leaves out the division (Dr. GRPO,
 * arXiv:2503.20783; verl's norm_adv_by_std_in_grpo: false); 'batch' divides by the std over all samples.
 * A group of one: verl takes mean 0 and std 1, so A is the reward itself.
 */
export function grpo(
  rewards: ArrayLike<number>,
  groups: ArrayLike<GroupId>,
  scale: ScaleRewards = 'group',
): Float64Array {
  const all = Array.from(rewards).filter((r) => !Number.isNaN(r));
  const batchStd = std(all);
  return perGroup(rewards, groups, (rs) => {
    const [center, spread] = rs.length === 1 ? [0, 1] : [mean(rs), std(rs)];
    const divisor = scale === 'none' ? 1 : (scale === 'batch' ? batchStd : spread) + EPSILON;
    return rs.map((r) => (r - center) / divisor);
  });
}

/** RLOO (arXiv:2402.14740): A = r - mean of the others in the group; a group of one keeps its reward. */
export function rloo(rewards: ArrayLike<number>, groups: ArrayLike<GroupId>): Float64Array {
  return perGroup(rewards, groups, (rs) => {
    const n = rs.length;
    if (n === 1) return rs;
    const center = mean(rs);
    return rs.map((r) => ((r - center) * n) / (n - 1));
  });
}

/** OPO (arXiv:2505.23585): the baseline is the group's mean reward weighted by response length; group of one: 0. */
export function opo(rewards: ArrayLike<number>, groups: ArrayLike<GroupId>, lengths: ArrayLike<number>): Float64Array {
  return perGroup(rewards, groups, (rs, indices) => {
    if (rs.length === 1) return rs;
    const total = indices.reduce((sum, i) => sum + lengths[i], 0);
    if (total === 0) return rs.map(() => 0);
    const baseline = indices.reduce((sum, i, k) => sum + lengths[i] * rs[k], 0) / total;
    return rs.map((r) => r - baseline);
  });
}

/**
 * GRPO pass@k (arXiv:2503.19595): only the best of a group learns, with (best - second) / (std + 1e-6) or without the
 * division. Throws for a group of one, as verl does.
 */
export function grpoPassk(rewards: ArrayLike<number>, groups: ArrayLike<GroupId>, normByStd = true): Float64Array {
  return perGroup(rewards, groups, (rs) => {
    if (rs.length < 2) throw new RangeError('grpo_passk needs at least 2 samples a group; raise rollout.n.');
    const order = rs.map((_, k) => k).sort((a, b) => rs[b] - rs[a]);
    const gap = rs[order[0]] - rs[order[1]];
    const advantages = rs.map(() => 0);
    advantages[order[0]] = normByStd ? gap / (std(rs) + EPSILON) : gap;
    return advantages;
  });
}

/** GPG (arXiv:2504.02546): A = alpha (r - mean_group) / fNorm, alpha = samples / samples with a reward that is not 0. */
export function gpg(rewards: ArrayLike<number>, groups: ArrayLike<GroupId>, fNorm = 1): Float64Array {
  const known = Array.from(rewards).filter((r) => !Number.isNaN(r));
  const alpha = known.length / Math.max(known.filter((r) => r !== 0).length, 1);
  return perGroup(rewards, groups, (rs) => {
    const center = rs.length === 1 ? 0 : mean(rs);
    return rs.map((r) => (alpha * (r - center)) / fNorm);
  });
}

/**
 * One value a token: the sample's number where the mask is 1, 0 elsewhere.
 * @param masks one array a sample, 1 = trained token
 */
export function broadcast(perSample: ArrayLike<number>, masks: readonly ArrayLike<number>[]): Float64Array[] {
  return masks.map((mask, s) => Float64Array.from(mask, (m) => (m === 0 ? 0 : m * perSample[s])));
}

/**
 * (x - mean) / sqrt(var + 1e-8) over the trained tokens of all samples (unbiased variance), 0 where masked. With fewer
 * than two trained tokens there is no variance and every value is 0.
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

/** Takes samples without a reward out of the statistics. */
function maskMissing(rewards: ArrayLike<number>, masks: readonly ArrayLike<number>[]): ArrayLike<number>[] {
  return masks.map((mask, s) => (Number.isNaN(rewards[s]) ? new Float64Array(mask.length) : mask));
}

/**
 * REINFORCE++ (arXiv:2501.03262): discounted return-to-go over the trained tokens, whitened over the batch. Tool tokens
 * pass the running return on unchanged.
 * @param tokenRewards reward of each token; an outcome reward sits on the last trained token (`outcomeRewards`)
 */
export function reinforcePlusPlus(
  tokenRewards: readonly Float64Array[],
  masks: readonly ArrayLike<number>[],
  gamma = 1,
): Float64Array[] {
  const returns = tokenRewards.map((rewards, s) => {
    const out = new Float64Array(rewards.length);
    let running = 0;
    for (let t = rewards.length - 1; t >= 0; t--) {
      const next = rewards[t] + gamma * running;
      out[t] = next * masks[s][t];
      running = next * masks[s][t] + running * (1 - masks[s][t]);
    }
    return out;
  });
  return whiten(returns, masks);
}

/** ReMax (arXiv:2310.10505): return-to-go minus the reward of a greedy answer to the same prompt. */
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
      out[t] = running - baselines[s] * masks[s][t];
    }
    return out;
  });
}

/** Token rewards of outcomes: the whole reward on the last trained token of each sample, 0 where it is missing. */
export function outcomeRewards(rewards: ArrayLike<number>, masks: readonly ArrayLike<number>[]): Float64Array[] {
  return masks.map((mask, s) => {
    const out = new Float64Array(mask.length);
    const last = Array.from(mask).lastIndexOf(1);
    if (last >= 0 && !Number.isNaN(rewards[s])) out[last] = rewards[s];
    return out;
  });
}

/**
 * GDPO (arXiv:2601.05242): each reward is normalised in its group on its own, then summed with its weight and whitened
 * over the batch, so that one large reward cannot drown the others.
 * @param components [K][N] one array of sample rewards per reward function
 * @param weights [K]; absent = all 1
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

/**
 * Weighted sum of several rewards a sample; a missing one (NaN) is left out, and a sample without any is NaN.
 * @param components [K][N]
 */
export function combineRewards(components: readonly ArrayLike<number>[], weights?: readonly number[]): Float64Array {
  const samples = components[0]?.length ?? 0;
  return Float64Array.from({ length: samples }, (_, i) => {
    const known = components
      .map((rewards, k) => ({ r: rewards[i], w: weights?.[k] ?? 1 }))
      .filter(({ r }) => !Number.isNaN(r));
    return known.length === 0 ? NaN : known.reduce((total, { r, w }) => total + w * r, 0);
  });
}

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

export type AdvantageEstimator =
  | 'grpo'
  | 'rloo'
  | 'opo'
  | 'reinforce_plus_plus'
  | 'reinforce_plus_plus_baseline'
  | 'remax'
  | 'grpo_passk'
  | 'gpg'
  | 'gdpo'
  | 'turn_loo';

export interface AdvantageInputs {
  /** [N] outcome of each sample; NaN = missing. */
  rewards: ArrayLike<number>;
  /** [N] which prompt. */
  groups: ArrayLike<GroupId>;
  /** One array a sample: 1 = trained token. */
  masks: readonly ArrayLike<number>[];
  /** gdpo: [K][N] single rewards. */
  components?: readonly ArrayLike<number>[];
  /** remax: [N] reward of the greedy answer. */
  baselines?: ArrayLike<number>;
  /** turn_loo: one array a sample, the reward of each turn. */
  turnRewards?: readonly ArrayLike<number>[];
}

export interface AdvantageOptions {
  /** grpo, gdpo, grpo_passk: see ScaleRewards. Default 'group'. */
  scaleRewards?: ScaleRewards;
  /** reinforce_plus_plus, turn_loo: discount per token or turn. Default 1. */
  gamma?: number;
  /** gdpo: [K]. */
  rewardWeights?: readonly number[];
}

/** Advantages of every token of a step's samples, 0 where the mask is 0: the controller's one entry point. */
export function computeAdvantages(
  estimator: AdvantageEstimator,
  inputs: AdvantageInputs,
  options: AdvantageOptions = {},
): Float64Array[] {
  const { rewards, groups, masks } = inputs;
  const scale = options.scaleRewards ?? 'group';
  const lengths = masks.map((mask) => Array.from(mask).reduce((a, b) => a + b, 0));
  switch (estimator) {
    case 'grpo':
      return broadcast(grpo(rewards, groups, scale), masks);
    case 'rloo':
      return broadcast(rloo(rewards, groups), masks);
    case 'opo':
      return broadcast(opo(rewards, groups, lengths), masks);
    case 'grpo_passk':
      return broadcast(grpoPassk(rewards, groups, scale !== 'none'), masks);
    case 'gpg':
      return broadcast(gpg(rewards, groups), masks);
    case 'reinforce_plus_plus_baseline':
      return reinforcePlusPlusBaseline(rewards, groups, masks);
    case 'reinforce_plus_plus':
      return reinforcePlusPlus(outcomeRewards(rewards, masks), maskMissing(rewards, masks), options.gamma);
    case 'gdpo':
      return gdpo(need(inputs.components, 'gdpo', 'components'), groups, masks, options.rewardWeights, scale);
    case 'remax':
      return remax(
        outcomeRewards(rewards, masks),
        maskMissing(rewards, masks),
        need(inputs.baselines, 'remax', 'baselines'),
      );
    case 'turn_loo':
      return broadcastTurns(
        turnLeaveOneOut(need(inputs.turnRewards, 'turn_loo', 'turnRewards'), groups, options.gamma),
        masks,
      );
    default:
      throw new RangeError(`Unknown advEstimator "${String(estimator)}"; see AdvantageEstimator for the known ones.`);
  }
}

function need<T>(value: T | undefined, estimator: string, name: string): T {
  if (value === undefined)
    throw new RangeError(`advEstimator "${estimator}" needs ${name}, which this task does not give.`);
  return value;
}
