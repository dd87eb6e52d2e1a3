/** Combines several named rewards into one, like TRL's `reward_funcs` and `reward_weights`. */

import { InputError } from '../../errors.ts';
import type { Reward, ScoredSample, Task } from '../task.ts';
import { isObject } from '../toolSchema.ts';

/**
 * Returns a sample's value of one named reward; null, undefined or NaN if this reward does not apply to the sample. It can also return
 * `extra` values: numbers become metrics, texts go to the logged rollouts and the report (TRL's log_metric and log_extra).
 */
export type RewardFunction = (sample: ScoredSample) => RewardValue | Promise<RewardValue>;

/** Result of one named reward: a number, nothing, or a number together with `extra` values. */
export type RewardValue = number | null | undefined | { score: number | null; extra?: Reward['extra'] };

type Weights = Readonly<Record<string, number>>;

/**
 * Returns the sum of named rewards, each times its weight (default 1). A reward that does not apply to a sample is skipped in the sample's
 * sum and in the metrics `reward/<name>/mean` and `/std`. If none applies, the sample has no reward: it is not trained on, and no other
 * sample is compared with it (training/missing_reward_share). `reward.weights` of a config replaces weights by name, and the advantage
 * estimator gdpo normalises each reward separately.
 *
 *   reward: combineRewards({ correct, format }, { weights: { format: 0.1 } })
 *
 * Throws InputError if a name in `weights`, or `acc`, is not the name of a function. The combined reward throws InputError for an infinite
 * reward and for two values with the same name.
 * @param acc name of the function whose value is the outcome, 0 or 1; default: the first function
 */
export function combineRewards(
  functions: Readonly<Record<string, RewardFunction>>,
  { weights = {}, acc }: { weights?: Weights; acc?: string } = {},
): Task['reward'] {
  const names = Object.keys(functions);
  if (names.length === 0) throw new InputError('combineRewards was given no functions. Give one or more, by name.');
  const outcome = acc ?? names[0];
  for (const name of [...Object.keys(weights), outcome])
    if (!Object.hasOwn(functions, name))
      throw new InputError(
        `combineRewards has no function "${name}"; it was given ${names.join(', ')}. Name one of them in acc and weights.`,
      );
  const all = Object.fromEntries(names.map((name) => [name, weights[name] ?? 1]));
  return async (sample) => {
    const given = await Promise.all(names.map(async (name) => functions[name](sample)));
    const extra: Record<string, number | string> = {};
    const add = (name: string, value: number | string) => {
      if (Object.hasOwn(extra, name))
        throw new InputError(`The rewards give two values of the name "${name}". Rename one of them.`);
      extra[name] = value;
    };
    names.forEach((name, i) => add(name, scoreOf(name, given[i], sample)));
    for (const value of given)
      if (typeof value === 'object') for (const [name, more] of Object.entries(value?.extra ?? {})) add(name, more);
    return { score: weightedSum(all, extra), acc: extra[outcome] as number, extra, weights: all };
  };
}

/**
 * Returns the task with other weights for its named rewards, or the task itself if `weights` is empty. Rewards from combineRewards get the
 * new weight instead of their own. For any other number in `extra`, that number times its weight is added to the score. Throws InputError
 * at the first sample whose reward lacks one of the names.
 */
export function withRewardWeights(task: Task, weights: Weights): Task {
  if (Object.keys(weights).length === 0) return task;
  const reward: Task['reward'] = async (sample) => {
    const given = await task.reward(sample);
    if (!isObject(given)) return given; // the check of all rewards reports it
    const { extra = {} } = given;
    const known = Object.keys(extra).filter((name) => typeof extra[name] === 'number');
    const unknown = Object.keys(weights).find((name) => !known.includes(name));
    if (unknown !== undefined)
      throw new InputError(
        `reward.weights names "${unknown}", but the named rewards of task "${task.name}" are ${known.join(', ') || 'none'} ` +
          `(problem "${sample.problem.id}"). A reward that does not apply to a sample must be NaN, not missing.`,
      );
    if (!given.weights) return { ...given, score: given.score + (weightedSum(weights, extra) || 0) };
    const all = { ...given.weights, ...weights };
    return { ...given, score: weightedSum(all, extra), weights: all };
  };
  return { ...task, reward };
}

/** Returns the weighted sum of the rewards that apply; NaN if none does. */
function weightedSum(weights: Weights, extra: NonNullable<Reward['extra']>): number {
  const there = Object.entries(weights).filter(([name]) => !Number.isNaN(extra[name]));
  return there.length === 0 ? NaN : there.reduce((sum, [name, weight]) => sum + weight * (extra[name] as number), 0);
}

function scoreOf(name: string, value: RewardValue, { problem }: ScoredSample): number {
  const score = (typeof value === 'object' ? value?.score : value) ?? NaN;
  if (Number.isFinite(score) || Number.isNaN(score)) return score;
  throw new InputError(
    `Reward "${name}" of problem "${problem.id}" is ${score}. Give a finite number, or null if it does not apply.`,
  );
}
