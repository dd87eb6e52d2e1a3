/** Checks the reward that an episode is given. */

import * as v from 'valibot';
import { LARGEST_REWARD } from '../../../grpo/generate/score.ts';
import type { Reward } from '../../../tasks/task.ts';
import { between, read, recordOf } from './read.ts';

/** What a reward says beside its number. */
export interface RewardOptions {
  /** The outcome alone, 1 = right, 0 = wrong; absent = not known. */
  acc?: number;
  /** Rewards of its replies, one each, in the order in which they were given: part of the score, for advEstimator turn_loo. */
  turns?: readonly number[];
  /** Further numbers (metrics tell their mean) and texts (logged with the rollouts), by name. */
  extra?: Readonly<Record<string, number | string>>;
}

/** A row of an episode: the replies that were drawn in it are trained. */
interface RewardedRow {
  sequence: { ownReplies: readonly { call?: number }[] };
}

const MAX_EXTRA = 64;
const AMOUNT = `a finite number of at most ${LARGEST_REWARD.toPrecision(2)} (float32)`;
const amount = between(-LARGEST_REWARD, LARGEST_REWARD, AMOUNT);
const extraName = v.pipe(v.string(), v.regex(/^(?!__proto__$)[\w./-]{1,64}$/));

const SCHEMA = {
  reward: amount,
  acc: v.optional(between(0, 1, '1 for right, 0 for wrong, or nothing')),
  extra: v.optional(
    recordOf(
      v.tuple([extraName, v.union([amount, v.string()])]),
      MAX_EXTRA,
      `at most ${MAX_EXTRA} finite numbers or texts, by names of letters, digits, _, ., / and -`,
    ),
  ),
};

/** Throws ApiError for what cannot be trained on. */
export function readReward(reward: unknown, options: object, rows: readonly RewardedRow[]): Reward {
  const calls = rows.flatMap(({ sequence }) => sequence.ownReplies.map(({ call }) => call ?? 0));
  const each = `a finite number for each of the ${calls.length} replies`;
  const turnsSchema = v.pipe(
    v.array(between(-LARGEST_REWARD, LARGEST_REWARD, each), each),
    v.length(calls.length, each),
  );
  const schema = v.object({ ...SCHEMA, turns: v.optional(turnsSchema) });
  const { reward: score, acc = NaN, turns, extra } = read(schema, { ...options, reward });
  return {
    score,
    acc,
    ...(turns && { turns: inRows(turns, calls) }),
    ...(extra && { extra: { ...extra } }),
  };
}

/** The rewards of the replies in the order of the rows, which forks make another than that of the calls. */
function inRows(turns: readonly number[], calls: readonly number[]): number[] {
  const inOrder = calls.map((_, row) => row).sort((a, b) => calls[a] - calls[b]); // stable: older checkpoints have no numbers
  return calls.map((_, row) => turns[inOrder.indexOf(row)]);
}
