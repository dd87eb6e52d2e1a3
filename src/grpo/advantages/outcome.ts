/**
 * Outcome estimators: from the rewards of a step's samples, grouped by prompt, to one advantage per sample. A reward of
 * NaN is missing (scoring failed or does not apply): such a sample is left out of its group's statistics and has
 * advantage 0. Names and constants are verl's. Standard deviations are unbiased (n - 1).
 */

export type GroupId = number | string;

/** Constant added to a standard deviation by which advantages are divided, so that the divisor is never 0. */
const EPSILON = 1e-6;

/** Returns sample indices by group, in order of first appearance. Samples without a reward are omitted. */
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

/**
 * Returns the mean; exactly the value itself if all values are equal, so that a group without spread has advantage 0
 * and no rounding error.
 */
export function mean(values: readonly number[]): number {
  if (values.length > 0 && values.every((value) => value === values[0])) return values[0];
  return values.reduce((a, b) => a + b, 0) / values.length;
}

/** Unbiased standard deviation; 0 for fewer than two values. */
export function std(values: readonly number[]): number {
  if (values.length < 2) return 0;
  const center = mean(values);
  return Math.sqrt(values.reduce((total, v) => total + (v - center) ** 2, 0) / (values.length - 1));
}

type GroupRule = (rewards: number[], indices: number[]) => number[];

/**
 * Applies `rule` to each group. Samples without a reward keep advantage 0. If only one sample of a larger group has a
 * reward, it also keeps 0, because there is nothing to compare it with (as in TRL). `rule` is also applied to groups
 * of one sample.
 */
function perGroup(rewards: ArrayLike<number>, groups: ArrayLike<GroupId>, rule: GroupRule): Float64Array {
  const advantages = new Float64Array(rewards.length);
  const sizes = new Map<GroupId, number>();
  for (const group of Array.from(groups)) sizes.set(group, (sizes.get(group) ?? 0) + 1);
  for (const indices of indicesByGroup(rewards, groups)) {
    if (indices.length === 1 && sizes.get(groups[indices[0]])! > 1) continue;
    const values = rule(
      indices.map((i) => rewards[i]),
      indices,
    );
    indices.forEach((i, k) => (advantages[i] = values[k]));
  }
  return advantages;
}

/**
 * How `grpo` scales advantages: by the group's std, by the std of the whole batch (TRL's scale_rewards), or not at all
 * (Dr. GRPO).
 */
export type ScaleRewards = 'group' | 'batch' | 'none';

/**
 * GRPO (arXiv:2402.03300): A = (r - mean_group) / (std_group + 1e-6). 'none' omits the division (Dr. GRPO,
 * arXiv:2503.20783; verl's norm_adv_by_std_in_grpo: false); 'batch' divides by the std over all samples. For a group of
 * one, verl uses mean 0 and std 1, so A is the reward itself.
 */
export function grpo(
  rewards: ArrayLike<number>,
  groups: ArrayLike<GroupId>,
  scale: ScaleRewards = 'group',
): Float64Array {
  const divisorOf = divisors(rewards, scale);
  return perGroup(rewards, groups, (rs) => {
    const [center, spread] = rs.length === 1 ? [0, 1] : [mean(rs), std(rs)];
    const divisor = divisorOf(spread);
    return rs.map((r) => (r - center) / divisor);
  });
}

/** Returns the divisor of a group's advantages as a function of the group's standard deviation. */
function divisors(rewards: ArrayLike<number>, scale: ScaleRewards): (spread: number) => number {
  if (scale === 'none') return () => 1;
  const batchStd = std(Array.from(rewards).filter((r) => !Number.isNaN(r)));
  return (spread) => (scale === 'batch' ? batchStd : spread) + EPSILON;
}

/**
 * RLOO (arXiv:2402.14740): A = r - mean reward of the other samples in the group. In a group of one, A is the reward.
 */
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
 * GRPO pass@k (arXiv:2503.19595): only the best sample of a group has an advantage: best - second, divided as by `grpo`.
 * Throws for a group of one, as verl does.
 */
export function grpoPassk(
  rewards: ArrayLike<number>,
  groups: ArrayLike<GroupId>,
  scale: ScaleRewards = 'group',
): Float64Array {
  const divisorOf = divisors(rewards, scale);
  return perGroup(rewards, groups, (rs) => {
    if (rs.length < 2) throw new RangeError('grpo_passk needs at least 2 samples per group. Raise rollout.n.');
    const order = rs.map((_, k) => k).sort((a, b) => rs[b] - rs[a]);
    const gap = rs[order[0]] - rs[order[1]];
    const advantages = rs.map(() => 0);
    advantages[order[0]] = gap / divisorOf(std(rs));
    return advantages;
  });
}

/**
 * GPG (arXiv:2504.02546): A = alpha (r - mean_group), where alpha = number of samples / number of samples with a
 * nonzero reward.
 */
export function gpg(rewards: ArrayLike<number>, groups: ArrayLike<GroupId>): Float64Array {
  const known = Array.from(rewards).filter((r) => !Number.isNaN(r));
  const alpha = known.length / Math.max(known.filter((r) => r !== 0).length, 1);
  return perGroup(rewards, groups, (rs) => {
    const center = rs.length === 1 ? 0 : mean(rs);
    return rs.map((r) => alpha * (r - center));
  });
}

/**
 * MaxRL (arXiv:2602.02710): A = (r - mean_group) / mean_group. This is the gradient of maximum likelihood, truncated at
 * the group's size, so problems that are seldom solved weigh more. For rewards >= 0; a group whose mean is not above 0
 * has advantage 0.
 */
export function maxRl(rewards: ArrayLike<number>, groups: ArrayLike<GroupId>): Float64Array {
  return perGroup(rewards, groups, (rs) => {
    const center = mean(rs);
    return rs.map((r) => (center > 0 ? (r - center) / center : 0));
  });
}

/** Running mean reward of each role. A missing role has baseline 0. */
export type RoleBaselines = Readonly<Record<string, number>>;

/**
 * Role-conditioned advantage estimation (SPIRAL, arXiv:2506.24119): A = r - baseline of the sample's role, then
 * baseline = decay * baseline + (1 - decay) * r, in sample order, so that a sample is never part of its own baseline.
 * For self-play, where the rewards of two roles add up to a constant and a group's mean carries no information.
 * @param roles [N]; default: all samples have one role, which is REINFORCE with a running baseline
 * @returns advantages [N], and the baselines for the next step
 */
export function rae(
  rewards: ArrayLike<number>,
  roles: readonly string[] | undefined,
  baselines: RoleBaselines = {},
  decay = 0.95,
): { advantages: Float64Array; baselines: RoleBaselines } {
  const running = new Map(Object.entries(baselines));
  const advantages = Float64Array.from(rewards, (reward, i) => {
    const role = roles?.[i] ?? 'policy';
    const baseline = running.get(role) ?? 0;
    if (Number.isNaN(reward)) return 0;
    running.set(role, decay * baseline + (1 - decay) * reward);
    return reward - baseline;
  });
  return { advantages, baselines: Object.fromEntries(running) };
}
