/**
 * Trajectories with several rows. An agent's episode can need more than one sequence of tokens, for example if it
 * changed its earlier messages or made two calls at the same time. Each sequence is a row of the batch. Additional rows
 * are marked `fork` and follow the first.
 *
 * Weight rule: a trajectory has one reward and counts once in its group, however many rows it has. Advantages,
 * penalties and corrections are computed on the concatenated rows of the trajectory, and then split again, so each row
 * has the advantage of the full trajectory. Limits apply to rows: the overlong penalty reads the longest row, and a
 * truncated row is masked alone. Every sampled token is trained in exactly one row; in other rows the token
 * is context. In the loss, lossAggMode counts tokens or sequences as usual, and a sequence is then a row.
 */

import { TokenLog } from '../../rollout/tokenLog.ts';
import type { TrainConfig } from '../config/types.ts';
import type { Sample } from './batch.ts';
import { keptMasks, type StepExtras, stepTokens, type StepTokens } from './stepTokens.ts';

/** Concatenates the rows of each trajectory, with one untrained token between two rows. */
export function wholeTrajectories(samples: readonly Sample[]): Sample[] {
  return rowsOf(samples).map((rows) => (rows.length === 1 ? rows[0] : joined(rows)));
}

/**
 * Like `stepTokens`, but for samples with several rows. `rewards` has a trajectory's reward at its first row and NaN at
 * its other rows.
 */
export function rowTokens(config: TrainConfig, samples: readonly Sample[], extras: StepExtras): StepTokens {
  const rows = rowsOf(samples);
  if (rows.length === samples.length) return stepTokens(config, samples, extras);
  const whole = wholeTrajectories(samples);
  const joinAll = (values: ArrayLike<number>[] | undefined) => values && joinedRows(samples, values);
  const { refLogProbs, oldLogProbs } = extras;
  const tokens = stepTokens(config, whole, {
    ...extras,
    refLogProbs: joinAll(refLogProbs),
    oldLogProbs: joinAll(oldLogProbs),
    rows: {
      kept: joinedRows(samples, keptMasks(config, samples)),
      longest: rows.map((one) => Math.max(...one.map(({ trajectory }) => trajectory.responseIds.length))),
    },
  });
  whole.forEach(({ advantage }, i) => rows[i].forEach((row) => advantage !== undefined && (row.advantage = advantage)));
  const cut = <T extends ArrayLike<number>>(values: T[]) => values.flatMap((all, i) => cutApart(all, rows[i]));
  return {
    ...tokens,
    masks: cut(tokens.masks),
    oldLogProbs: cut(tokens.oldLogProbs),
    advantages: cut(tokens.advantages),
    ...(tokens.isWeights && { isWeights: cut(tokens.isWeights).map((values) => Float64Array.from(values)) }),
    ...(tokens.refLogProbs && { refLogProbs: cut(tokens.refLogProbs) }),
    rewards: tokens.rewards.flatMap((reward, i) => rows[i].map((_, row) => (row === 0 ? reward : NaN))),
  };
}

/** Concatenates per-row arrays to arrays of full trajectories. */
export function joinedRows(samples: readonly Sample[], values: readonly ArrayLike<number>[]): ArrayLike<number>[] {
  let at = 0;
  return rowsOf(samples).map((rows) => withGaps(values.slice(at, (at += rows.length))));
}

/** Rows of each trajectory; the rows of one trajectory are neighbours. */
function rowsOf(samples: readonly Sample[]): Sample[][] {
  const rows: Sample[][] = [];
  for (const sample of samples) {
    if (sample.fork) rows.at(-1)!.push(sample);
    else rows.push([sample]);
  }
  return rows;
}

function joined(rows: readonly Sample[]): Sample {
  const all = rows.map(({ trajectory }) => trajectory);
  const sum = (key: 'numTurns' | 'numToolCalls' | 'numToolErrors') => all.reduce((n, one) => n + one[key], 0);
  const tokens = new TokenLog();
  all.forEach((row, i) => {
    if (i > 0) tokens.push({ responseIds: [0] }); // separates two rows
    tokens.push(row);
  });
  const trajectory = {
    ...all[0],
    ...tokens.slice(),
    stopReason: all.at(-1)!.stopReason,
    numTurns: sum('numTurns'),
    numToolCalls: sum('numToolCalls'),
    numToolErrors: sum('numToolErrors'),
  };
  return { ...rows[0], trajectory };
}

/** Concatenates the parts with a 0 between each two. */
const withGaps = (parts: readonly ArrayLike<number>[]): Float64Array =>
  Float64Array.from(parts.flatMap((part, i) => [...(i > 0 ? [0] : []), ...Array.from(part)]));

function cutApart(values: ArrayLike<number>, rows: readonly Sample[]): ArrayLike<number>[] {
  if (rows.length === 1) return [values];
  let at = 0;
  return rows.map(({ trajectory: { responseIds } }) => {
    const part = Array.from(values).slice(at, at + responseIds.length);
    at += responseIds.length + 1;
    return part;
  });
}
