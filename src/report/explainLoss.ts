/** Explains why the policy loss of a step says little about progress, which users of GRPO often ask. */

import type { Metrics } from '../grpo/metrics.ts';

/** If a larger fraction of the groups than this has no signal, the explanation is about these groups instead of the loss. */
const MOSTLY_SILENT = 0.9;

/**
 * Returns two or three sentences about `actor/pg_loss` of a step. Undefined before the first update, and if the loss is not finite. The
 * gradient of a sample is -A d log p, whatever the sum of the losses is.
 */
export function explainLoss(metrics: Metrics, n?: number): string | undefined {
  const loss = metrics['actor/pg_loss'];
  const size = metrics['critic/advantages/abs_mean'];
  if (loss === undefined || size === undefined || !Number.isFinite(loss + size)) return undefined;
  const silent = metrics['frac_reward_zero_std'] ?? 0;
  const shown = `The policy loss is ${loss.toFixed(4).replace('-', '\u2212')}`;
  // The rewards of a group with one sample have no spread, so a zero advantage does not mean that the problem has no signal.
  if (n === 1)
    return `${shown}. With one try per prompt (rollout.n 1) the advantage is the reward (grpo, rloo): no try is compared with another. ${MEASURE}`;
  if (silent >= MOSTLY_SILENT) {
    const solved = metrics['solved/all']; // absent if outcomes are unknown
    const share = solved === undefined ? '' : ` (${percent(solved)} solve every one)`;
    return `${shown}: in ${percent(silent)} of the groups all tries earn the same${share}, so there is little left to learn from.`;
  }
  const perToken = metrics['critic/advantages/mean'] ?? 0;
  if (Math.abs(loss) > 0.1 * size)
    return Math.abs(loss + perToken) > 0.1 * size ? `${shown}${MOVED}` : `${shown}${LENGTHS}`;
  return (
    `${shown}, as expected: the tries were sampled from the current model, and within a group the good ones weigh as much ` +
    `as the bad ones, so their losses cancel. Their gradients do not: the mean |advantage| is ${size.toFixed(2)}, and ` +
    `${percent(1 - silent)} of the groups have tries that earn differently. Progress shows in reward and pass@1.`
  );
}

const MEASURE = 'Reward and pass@1 are the measure of progress.';
const MOVED =
  ': the policy has moved since the tries were sampled, or the loss holds more than advantages. It does not measure progress: ' +
  'reward and pass@1 do.';
const LENGTHS =
  ', the negated mean advantage per token. Advantages do not cancel when tries differ in length: a negative value means ' +
  'that the better tries are longer, a positive one that they are shorter. It does not measure progress: reward and pass@1 do.';

const percent = (share: number) => `${(100 * share).toFixed(0)}%`;
