/**
 * `trainer.stopWhen`: ends a run when a metric is good enough.
 */

import { InputError } from '../errors.ts';
import { nearestKey } from './config/resolve.ts';
import type { TrainConfig } from './config/types.ts';
import type { Metrics } from './metrics.ts';

/**
 * Returns the reason if the metrics of a step end the run; undefined otherwise. Throws InputError if the configured
 * metric is missing where it should be: an evaluation's metric after an evaluation, any other metric in the first step.
 */
export function goalReached({ trainer }: TrainConfig, metrics: Metrics, firstStep: boolean): string | undefined {
  if (!trainer.stopWhen) return undefined;
  const { metric, atLeast, atMost } = trainer.stopWhen;
  const value = metrics[metric];
  if (value === undefined) {
    const expected = isEvaluation(metric) ? isEvaluated(metrics) : firstStep;
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

/** True if a setting reads a metric of greedy answers, so that every evaluation must generate greedy answers too. */
export const readsGreedy = ({ trainer: { stopWhen, metricForBestModel } }: TrainConfig): boolean =>
  [stopWhen?.metric, metricForBestModel].some((metric) => metric?.endsWith('/greedy'));

/**
 * Returns whether the step is followed by an evaluation, and whether it is the start or the end of the run. Evaluations
 * at the start and the end also include greedy answers.
 */
export function evaluationAt({ trainer }: TrainConfig, step: number): { isDue: boolean; isEnd: boolean } {
  const { testFreq, totalTrainingSteps } = trainer;
  const isEnd = step === 0 || step === totalTrainingSteps;
  return { isEnd, isDue: isEnd || (testFreq > 0 && step % testFreq === 0) };
}

/** True if the run ends after the step of a line of metrics: at its last step, or because trainer.stopWhen is reached. */
export const isEndOfRun = (config: TrainConfig, line: Metrics): boolean =>
  line['training/global_step'] === config.trainer.totalTrainingSteps || goalReached(config, line, false) !== undefined;

/** True if a line of metrics includes those of an evaluation. */
export const isEvaluated = (line: Metrics): boolean => line['timing_s/testing'] !== undefined;
