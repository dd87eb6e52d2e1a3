/** `trainer.stopWhen`: a run is done when a metric is good enough. */

import { InputError } from '../errors.ts';
import { nearestKey } from './config/resolve.ts';
import type { TrainConfig } from './config/types.ts';
import type { Metrics } from './metrics.ts';

/**
 * Why the run is done by the metrics of a step; undefined while it is not. Throws InputError for a metric that is not in a
 * line where it should be: one of evaluations in the line of one, any other in the line of `firstStep`.
 */
export function goalReached({ trainer }: TrainConfig, metrics: Metrics, firstStep: boolean): string | undefined {
  if (!trainer.stopWhen) return undefined;
  const { metric, atLeast, atMost } = trainer.stopWhen;
  const value = metrics[metric];
  if (value === undefined) {
    const expected = isEvaluation(metric) ? metrics['timing_s/testing'] !== undefined : firstStep;
    if (!expected) return undefined;
    const known = Object.keys(metrics).filter((name) => isEvaluation(name) === isEvaluation(metric));
    const hint =
      known.length > 0 ? `Did you mean "${nearestKey(metric, known)}"?` : 'This run has no metric of that kind.';
    throw new InputError(
      `trainer.stopWhen.metric is "${metric}", which step ${metrics['training/global_step']} lacks. ${hint}`,
    );
  }
  if (atLeast !== undefined && value >= atLeast) return `${metric} is ${value}, at least ${atLeast}`;
  if (atMost !== undefined && value <= atMost) return `${metric} is ${value}, at most ${atMost}`;
  return undefined;
}

/** True for a metric that only evaluations have. */
export const isEvaluation = (metric: string): boolean => metric.startsWith('val-');

/** Greedy answers are part of every evaluation where they end the run. */
export const readsGreedy = ({ trainer }: TrainConfig): boolean => trainer.stopWhen?.metric.endsWith('/greedy') ?? false;
