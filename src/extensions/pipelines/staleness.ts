/** Age of the weights that sampled a step's tokens: `training/off_policy/*` and verl's `fully_async/partial/*`. */

import type { Metrics } from '../../grpo/metrics.ts';
import { versionsOf } from './records.ts';
import type { Sample } from '../../grpo/update/batch.ts';

/** Tokens of this age or older are counted in one metric. */
const OLDEST = 8;

/**
 * Returns staleness metrics of a step's samples: `training/off_policy/age_<k>` is the share of sampled tokens whose
 * weights were k steps older than the policy that the step trains. Also mean and max age, and the number of samples
 * that several versions sampled.
 */
export function stalenessMetrics(samples: readonly Sample[], step: number): Metrics {
  const tokens: number[] = [];
  let [sum, max, count] = [0, 0, 0];
  for (const { mask, weightVersions } of samples.map(({ trajectory }) => trajectory))
    weightVersions?.forEach((version, t) => {
      if (mask[t] === 0) return;
      const age = Math.max(0, step - 1 - version);
      const place = Math.min(age, OLDEST);
      tokens[place] = (tokens[place] ?? 0) + 1;
      [sum, max, count] = [sum + age, Math.max(max, age), count + 1];
    });
  const spans = samples.map(({ trajectory }) => versionsOf(trajectory)).map(({ oldest, newest }) => newest - oldest);
  const partial = spans.filter((span) => span > 0).length;
  const metrics: Metrics = {
    'fully_async/partial/total_partial_num': partial,
    'fully_async/partial/partial_ratio': partial / Math.max(1, samples.length),
    'fully_async/partial/max_partial_span': spans.reduce((a, b) => Math.max(a, b), 0),
  };
  if (count === 0) return metrics;
  tokens.forEach((drawn, age) => {
    metrics[`training/off_policy/age_${age}${age === OLDEST ? '_and_more' : ''}`] = drawn / count;
  });
  return {
    ...metrics,
    'training/off_policy/age/mean': sum / count,
    'training/off_policy/age/max': max,
    'training/stale_tokens_share': 1 - (tokens[0] ?? 0) / count,
  };
}

/** True for a sample with a token that was sampled by older weights than those that the step trains. */
export const isStale = ({ trajectory }: Sample, step: number): boolean => versionsOf(trajectory).oldest < step - 1;
