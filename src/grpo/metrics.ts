/**
 * Step and validation metrics under verl's names, plus some that verl lacks: group spread, solved counts, pass@k,
 * percentiles.
 *
 * Every function takes plain records and sums in sample order, so equal inputs give equal numbers, independent of the
 * timing of the rollouts. A mean over no values is omitted instead of NaN.
 */

import type { RolloutStats, Trajectory } from '../rollout/types.ts';
import type { Reward } from '../tasks/task.ts';
import { indicesByGroup, mean, std, type GroupId } from './advantages/index.ts';

/** Metrics of one step by name; docs/reference/metrics.md explains each. */
export type Metrics = Record<string, number>;

/** Returns `<name>/mean`, `/max`, `/min`; nothing for an empty list. */
function summarize(name: string, values: readonly number[]): Metrics {
  if (values.length === 0) return {};
  let [max, min] = [values[0], values[0]];
  for (const v of values) [max, min] = [Math.max(max, v), Math.min(min, v)];
  return { [`${name}/mean`]: mean(values), [`${name}/max`]: max, [`${name}/min`]: min };
}

/** Quantile q in [0, 1] by linear interpolation between order statistics (numpy's default). */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * q;
  const low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}

interface StepSamples {
  /** [N] trajectories in sample order, like all arrays below. */
  trajectories: readonly Trajectory[];
  rewards: readonly Reward[];
  /** Rows of the trajectories, whose lengths are reported. Default: the trajectories. */
  rows?: readonly Pick<Trajectory, 'promptIds' | 'responseIds'>[];
  /** [N] rewards that the advantage was computed from, if they differ from the score (KL in the reward). */
  finalRewards?: readonly number[];
  groups: ArrayLike<GroupId>;
  /** One array per sample, as long as its response; 0 where the mask is 0. */
  advantages: readonly ArrayLike<number>[];
  /** Masks of the tokens that have advantages. Default: the trajectories' masks. */
  masks?: readonly ArrayLike<number>[];
  maxResponseLength: number;
  maxPromptLength: number;
}

/**
 * Returns critic/*, response_length/*, prompt_length/*, num_turns/*, tool_call_counts/*, tools/*, reward/* and the group counts
 * of a step.
 */
export function dataMetrics(step: StepSamples): Metrics {
  const { trajectories, rewards, rows = trajectories } = step;
  const scores = rewards.map((r) => r.score).filter((score) => !Number.isNaN(score));
  const masks = step.masks ?? trajectories.map(({ mask }) => mask);
  const advantages = trainedValues(step.advantages, masks);
  return {
    ...summarize('critic/score', scores),
    ...summarize('critic/rewards', step.finalRewards?.filter((reward) => !Number.isNaN(reward)) ?? scores),
    ...summarize('critic/advantages', advantages),
    ...summarize('critic/returns', advantages),
    ...(advantages.length > 0 ? { 'critic/advantages/abs_mean': mean(advantages.map(Math.abs)) } : {}),
    ...lengthMetrics(
      'response_length',
      rows.map((row) => row.responseIds.length),
      step.maxResponseLength,
    ),
    ...lengthMetrics(
      'prompt_length',
      rows.map((row) => row.promptIds.length),
      step.maxPromptLength,
    ),
    ...summarize(
      'num_turns',
      trajectories.map((t) => t.numTurns),
    ),
    ...summarize(
      'tool_call_counts',
      trajectories.map((t) => t.numToolCalls),
    ),
    ...toolMetrics(trajectories),
    ...rewardMetrics(rewards),
    ...groupMetrics(rewards, step.groups),
    ...stopMetrics(trajectories),
  };
}

/** Values of all positions where the mask is 1, sample by sample. */
function trainedValues(perToken: readonly ArrayLike<number>[], masks: readonly ArrayLike<number>[]): number[] {
  return perToken.flatMap((values, s) => Array.from(values).filter((_, t) => masks[s][t] === 1));
}

/**
 * Returns mean, max, min, p10 and p90 of lengths in tokens, and the share of lengths that reached the limit (verl's
 * clip_ratio).
 */
function lengthMetrics(name: string, lengths: readonly number[], limit: number): Metrics {
  if (lengths.length === 0) return {};
  return {
    ...summarize(name, lengths),
    [`${name}/p10`]: quantile(lengths, 0.1),
    [`${name}/p90`]: quantile(lengths, 0.9),
    [`${name}/clip_ratio`]: mean(lengths.map((n) => (n >= limit ? 1 : 0))),
  };
}

function toolMetrics(trajectories: readonly Trajectory[]): Metrics {
  const sum = (key: 'numToolCalls' | 'numToolErrors' | 'numToolOutputs' | 'numTruncatedOutputs') =>
    trajectories.reduce((n, t) => n + (t[key] ?? 0), 0);
  const [calls, outputs] = [sum('numToolCalls'), sum('numToolOutputs')];
  return {
    ...(calls > 0 && { 'tool_call_counts/error_rate': sum('numToolErrors') / calls }),
    ...(outputs > 0 && { 'tools/cut_share': sum('numTruncatedOutputs') / outputs }),
  };
}

/**
 * Returns `critic/acc/mean`, and `reward/<name>/mean` and `/std` of each additional number of the reward function. NaN
 * and missing numbers are skipped.
 */
function rewardMetrics(rewards: readonly Reward[]): Metrics {
  const byName = new Map<string, number[]>();
  for (const { extra } of rewards) {
    for (const [name, value] of Object.entries(extra ?? {})) {
      if (typeof value !== 'number') continue;
      if (!byName.has(name)) byName.set(name, []);
      if (!Number.isNaN(value)) byName.get(name)?.push(value);
    }
  }
  const metrics: Metrics = {};
  const accs = rewards.map((r) => r.acc).filter((acc) => !Number.isNaN(acc));
  if (accs.length > 0) metrics['critic/acc/mean'] = mean(accs);
  for (const [name, values] of byName) {
    if (values.length === 0) continue;
    metrics[`reward/${name}/mean`] = mean(values);
    metrics[`reward/${name}/std`] = std(values);
  }
  return metrics;
}

/**
 * Returns metrics over groups: `frac_reward_zero_std` (no signal: all scores equal), `solved/none`, `solved/some`,
 * `solved/all` (shares by acc of the groups whose outcomes are known; absent without any), and the mean std of a
 * group's scores.
 */
export function groupMetrics(rewards: readonly Reward[], groups: ArrayLike<GroupId>): Metrics {
  const scores = rewards.map((r) => r.score);
  const members = indicesByGroup(scores, groups);
  if (members.length === 0) return {};
  const spreads = members.map((indices) => std(indices.map((i) => scores[i])));
  const accs = members.map((indices) => indices.map((i) => rewards[i].acc));
  const known = accs.filter((values) => !values.some(Number.isNaN));
  const solved = known.map((values) => mean(values.map((acc) => (acc >= 1 ? 1 : 0))));
  const share = (of: readonly boolean[]): number => of.filter(Boolean).length / of.length;
  return {
    frac_reward_zero_std: share(members.map((indices) => indices.every((i) => scores[i] === scores[indices[0]]))),
    'critic/group_std/mean': mean(spreads),
    ...(solved.length > 0 && {
      'solved/none': share(solved.map((s) => s === 0)),
      'solved/some': share(solved.map((s) => s > 0 && s < 1)),
      'solved/all': share(solved.map((s) => s === 1)),
    }),
  };
}

/**
 * Returns `stop/<reason>`, the share of samples that ended for this reason, and `response/aborted_ratio` as verl counts
 * it (empty responses).
 */
function stopMetrics(trajectories: readonly Trajectory[]): Metrics {
  const metrics: Metrics = {};
  for (const { stopReason } of trajectories) {
    metrics[`stop/${stopReason}`] = (metrics[`stop/${stopReason}`] ?? 0) + 1 / trajectories.length;
  }
  if (trajectories.length > 0) {
    metrics['response/aborted_ratio'] = mean(trajectories.map((t) => (t.responseIds.length === 0 ? 1 : 0)));
  }
  return metrics;
}

/**
 * Returns how far the sampler's and the trainer's probabilities (not logs) of the same tokens differ, in [0, 1]. The
 * max is 0 if both compute the same bits.
 * @param rolloutLogp, actorLogp [E] trained tokens only
 */
export function rolloutProbsDiff(rolloutLogp: ArrayLike<number>, actorLogp: ArrayLike<number>): Metrics {
  if (rolloutLogp.length === 0) return { 'training/rollout_probs_diff_valid': 0 };
  const rollout = Array.from(rolloutLogp, Math.exp);
  const actor = Array.from(actorLogp, Math.exp);
  const diffs = rollout.map((p, e) => Math.abs(p - actor[e]));
  return {
    'training/rollout_probs_diff_valid': 1,
    'training/rollout_probs_diff_max': diffs.reduce((a, b) => Math.max(a, b), 0),
    'training/rollout_probs_diff_mean': mean(diffs),
    'training/rollout_probs_diff_std': std(diffs),
    ...pearson(rollout, actor),
  };
}

/** Pearson correlation; omitted if all values on one side are equal. */
function pearson(x: readonly number[], y: readonly number[]): Metrics {
  const [mx, my] = [mean(x), mean(y)];
  const cov = x.reduce((sum, v, i) => sum + (v - mx) * (y[i] - my), 0);
  const norm = Math.sqrt(x.reduce((s, v) => s + (v - mx) ** 2, 0) * y.reduce((s, v) => s + (v - my) ** 2, 0));
  return norm > 0 ? { 'training/rollout_actor_probs_pearson_corr': cov / norm } : {};
}

/** Stages whose time is also reported per token of prompt and response; `gen` is reported per response token. */
const ALL_TOKEN_STAGES = ['ref', 'old_log_prob', 'adv', 'update_actor'];

/**
 * Returns `timing_s/<stage>` in seconds, `timing_per_token_ms/<stage>`, and `perf/*`.
 * @param seconds by stage: gen, reward, adv, update_actor, ..., and `step` for the whole step
 * @param trajectories samples of the step, for the token counts
 */
export function timingMetrics(seconds: Readonly<Record<string, number>>, trajectories: readonly Trajectory[]): Metrics {
  const response = trajectories.reduce((n, t) => n + t.responseIds.length, 0);
  const total = response + trajectories.reduce((n, t) => n + t.promptIds.length, 0);
  const metrics: Metrics = {};
  for (const [stage, time] of Object.entries(seconds)) {
    metrics[`timing_s/${stage}`] = time;
    const tokens = stage === 'gen' ? response : ALL_TOKEN_STAGES.includes(stage) ? total : 0;
    if (tokens > 0) metrics[`timing_per_token_ms/${stage}`] = (time * 1000) / tokens;
  }
  metrics['perf/total_num_tokens'] = total;
  if (seconds.step > 0) metrics['perf/time_per_step'] = seconds.step;
  return metrics;
}

/** Unbiased pass@k from c correct of n samples: 1 - C(n - c, k) / C(n, k) (arXiv:2107.03374); k <= n. */
export function passAtK(n: number, c: number, k: number): number {
  checkK(n, k);
  let allWrong = 1;
  for (let i = 0; i < k; i++) allWrong *= Math.max(n - c - i, 0) / (n - i);
  return 1 - allWrong;
}

/** Unbiased pass^k, the probability that k samples are all correct: C(c, k) / C(n, k) (arXiv:2406.12045); k <= n. */
export function passHatK(n: number, c: number, k: number): number {
  checkK(n, k);
  let allRight = 1;
  for (let i = 0; i < k; i++) allRight *= Math.max(c - i, 0) / (n - i);
  return allRight;
}

function checkK(n: number, k: number): void {
  if (k < 1 || k > n)
    throw new RangeError(`pass@${k} cannot be computed from ${n} samples; allowed: k from 1 to ${n}.`);
}

/**
 * Returns held-out results: `val-core/<task>/acc/mean@n` (verl's name; n samples per problem), and with n > 1 pass@k
 * and pass^k for k = 2, 4, ... n. Skips a problem with a sample of unknown outcome (NaN); their share is
 * `val-aux/<task>/acc/missing_share`, absent if it is 0.
 * @param outcomes one array per problem, 1 = correct; all of length n
 */
export function validationMetrics(task: string, outcomes: readonly (readonly number[])[]): Metrics {
  const accs = outcomes.filter((problem) => !problem.some(Number.isNaN));
  const missing = 1 - accs.length / outcomes.length;
  const metrics: Metrics = missing > 0 ? { [`val-aux/${task}/acc/missing_share`]: missing } : {};
  if (accs.length === 0) return metrics;
  const n = accs[0].length;
  const base = `val-core/${task}/acc`;
  metrics[`${base}/mean@${n}`] = mean(accs.map((problem) => mean(problem)));
  for (const k of powersUpTo(n)) {
    const counts = accs.map((problem) => problem.filter((acc) => acc >= 1).length);
    metrics[`${base}/pass@${k}`] = mean(counts.map((c) => passAtK(n, c, k)));
    metrics[`${base}/pass^${k}`] = mean(counts.map((c) => passHatK(n, c, k)));
  }
  return metrics;
}

/** Values of k: 2, 4, 8, ... and n. */
export function powersUpTo(n: number): number[] {
  const powers = [];
  for (let k = 2; k < n; k *= 2) powers.push(k);
  return n > 1 ? [...powers, n] : [];
}

/** Mean of one sample's values over its trained tokens; 0 if it has none. */
export function meanTrained(values: ArrayLike<number>, mask: ArrayLike<number>): number {
  const trained = Array.from(values).filter((_, t) => mask[t]);
  return trained.reduce((a, b) => a + b, 0) / Math.max(1, trained.length);
}

/**
 * Returns numbers of generated and trained tokens, and tokens per second.
 * @param seconds by stage, as in `timingMetrics`
 */
export function throughput(stats: RolloutStats, trained: number, seconds: Record<string, number>): Metrics {
  const context = stats.prefillTokens + stats.cachedTokens;
  return {
    'perf/generated_tokens': stats.generatedTokens,
    'perf/trained_tokens': trained,
    'perf/gen_tokens_per_s': stats.generatedTokens / seconds.gen,
    'perf/throughput': (stats.generatedTokens + stats.prefillTokens) / seconds.step,
    // cached_tokens_share and wasted_rows_share depend on when requests arrived, so they can differ between equal runs.
    'timing_engine/cached_tokens_share': context > 0 ? stats.cachedTokens / context : 0,
    'timing_engine/wasted_rows_share': stats.liveRows > 0 ? stats.wastedRows / stats.liveRows : 0,
    ...speculation(stats),
  };
}

/**
 * Metrics of speculative decoding, if drafts were made. They depend on the schedule, so two equal runs can differ in
 * them.
 */
function speculation({ draftTokens, acceptedTokens, verifications }: RolloutStats): Metrics {
  if (draftTokens === 0) return {};
  return {
    'rollout/spec_accept_rate': acceptedTokens / draftTokens,
    'rollout/spec_tokens_per_step': 1 + acceptedTokens / verifications,
  };
}

/**
 * Combines each metric of the mini-batches that report it, as verl does: max or min if the name says so, otherwise the
 * mean. The number of skipped updates is summed.
 */
export function reduceMetrics(all: Metrics[]): Metrics {
  const result: Metrics = {};
  for (const name of new Set(all.flatMap((metrics) => Object.keys(metrics)))) {
    const values = all.map((metrics) => metrics[name]).filter((value) => value !== undefined);
    const total = values.reduce((sum, value) => sum + value, 0);
    if (/(^|[_/])max([_/]|$)/.test(name)) result[name] = values.reduce((a, b) => Math.max(a, b));
    else if (/(^|[_/])min([_/]|$)/.test(name)) result[name] = values.reduce((a, b) => Math.min(a, b));
    else result[name] = name === 'actor/skipped_updates' ? total : total / values.length;
  }
  return result;
}
