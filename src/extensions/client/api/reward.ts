/** Checks the reward that an episode is given. */

import type { Reward } from '../../../tasks/task.ts';
import { isObject } from '../../../tasks/toolSchema.ts';
import { LARGEST_REWARD } from '../../../grpo/generate/score.ts';
import { refuse, shown } from './apiError.ts';

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

/** Throws ApiError for what cannot be trained on. */
export function readReward(
  score: unknown,
  { acc, turns, extra }: { acc?: unknown; turns?: unknown; extra?: unknown },
  rows: readonly RewardedRow[],
): Reward {
  const range = `a finite number of at most ${LARGEST_REWARD.toPrecision(2)} (float32)`;
  if (!isAmount(score)) throw refuse('reward', `The reward is ${shown(score)}; give ${range}.`);
  if (acc !== undefined && !(isAmount(acc) && acc >= 0 && acc <= 1))
    throw refuse('acc', `acc is ${shown(acc)}; give 1 for right, 0 for wrong, or leave it out.`);
  return {
    score,
    acc: acc ?? NaN,
    ...(turns !== undefined && { turns: readTurns(turns, rows) }),
    ...(extra !== undefined && { extra: readExtra(extra) }),
  };
}

/** The rewards of the replies in the order of the rows, which forks make another than that of the calls. */
function readTurns(turns: unknown, rows: readonly RewardedRow[]): number[] {
  const calls = rows.flatMap(({ sequence }) => sequence.ownReplies.map(({ call }) => call ?? 0));
  if (!Array.isArray(turns) || turns.length !== calls.length || !turns.every(isAmount))
    throw refuse('turns', `turns is ${shown(turns)}; give a finite number for each of the ${calls.length} replies.`);
  const inOrder = calls.map((_, row) => row).sort((a, b) => calls[a] - calls[b]); // stable: older checkpoints have no numbers
  const byRow = new Array<number>(calls.length);
  inOrder.forEach((row, i) => (byRow[row] = turns[i]));
  return byRow;
}

function readExtra(extra: unknown): Record<string, number | string> {
  const entries = isObject(extra) ? Object.entries(extra) : [];
  const isOne = ([name, value]: [string, unknown]) =>
    /^[\w./-]{1,64}$/.test(name) && name !== '__proto__' && (isAmount(value) || typeof value === 'string');
  if (isObject(extra) && entries.length <= MAX_EXTRA && entries.every(isOne))
    return Object.fromEntries(entries) as Record<string, number | string>;
  throw refuse(
    'extra',
    `extra must be at most ${MAX_EXTRA} finite numbers or texts, by names of letters, digits, _, ., / and -.`,
  );
}

const isAmount = (value: unknown): value is number => typeof value === 'number' && Math.abs(value) <= LARGEST_REWARD;
