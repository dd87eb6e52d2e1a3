/** Validates the reward that a client gives to an episode. */

import * as v from 'valibot';
import { LARGEST_REWARD } from '../../../grpo/generate/score.ts';
import type { Reward } from '../../../tasks/task.ts';
import { between, read, recordOf } from './read.ts';

/** Optional parts of a reward, in addition to the score. */
export interface RewardOptions {
  /** Accuracy: 1 = right, 0 = wrong. Undefined if unknown. */
  acc?: number;
  /** One reward per reply of the episode, in the order of the replies, for advEstimator turn_loo. The score must include them. */
  turns?: readonly number[];
  /** Further values by name: numbers, whose mean is logged as a metric, and texts, which are logged with the rollouts. */
  extra?: Readonly<Record<string, number | string>>;
}

/** A training row of an episode. Its loss covers only the replies that were sampled in this row. */
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

/** Validates a reward. Throws ApiError for values that training cannot use. */
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

/**
 * Reorders the rewards of replies: from the order in which the replies were sampled to their order in the training rows. The two differ if
 * the episode has forks.
 */
function inRows(turns: readonly number[], calls: readonly number[]): number[] {
  const inOrder = calls.map((_, row) => row).sort((a, b) => calls[a] - calls[b]); // the sort is stable, and older checkpoints have no numbers
  return calls.map((_, row) => turns[inOrder.indexOf(row)]);
}
