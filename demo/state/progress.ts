/** Progress of a run, and its remaining time. */

import { computed } from '@preact/signals';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { config, heldOut, history, phase, scored, stepsDone } from './page.ts';
import { active } from './stage.ts';

/** Returns the number of tries per step. */
export const triesOfStep = ({ data, rollout }: TrainConfig): number => data.trainBatchSize * rollout.n;

/** Share of the run that is done, 0 to 1. */
export const shareDone = computed(() => {
  if (!config.value) return 0;
  const part = phase.value === 'generate' ? scored.value / triesOfStep(config.value) : 0;
  return Math.min(1, (stepsDone.value + part * 0.7) / config.value.trainer.totalTrainingSteps);
});

/** Remaining seconds; undefined if no run is active, or its speed is not known yet. */
export const timeLeft = computed(() => {
  if (!active.value || !config.value) return undefined;
  return secondsLeft(config.value, history.value, heldOut.value);
});

/** Number of recent steps from which the mean and the trend are computed. */
const RECENT = 10;

/** Limit of the extrapolated trend: the seconds of a step can grow or shrink by at most this factor. */
const MOST_GROWTH = 1.5;

/** Returns the remaining seconds; undefined before the first step. @param heldOut number of problems of an evaluation, if it is known */
export function secondsLeft(
  config: TrainConfig,
  lines: readonly Metrics[],
  heldOut = config.data.valMaxSamples,
): number | undefined {
  const { totalTrainingSteps: total, valBeforeTrain } = config.trainer;
  const recent = lines.filter((line) => 'timing_s/step' in line).slice(-RECENT);
  const done = lines.at(-1)?.['training/global_step'] ?? 0;
  if (recent.length === 0 || done >= total) return undefined;
  const step = stepSeconds(
    recent.map((line) => line['timing_s/step']),
    total - done,
  );
  const evaluations = evaluationsLeft(config.trainer, done) + (valBeforeTrain && !lines.some(isStart) ? 1 : 0);
  return step * (total - done) + evaluations * evaluationSeconds(config, lines, heldOut);
}

const isStart = (line: Metrics): boolean => line['training/global_step'] === 0;

/**
 * Returns the mean seconds of the remaining steps: the mean of recent steps, extrapolated by their trend because the length of answers
 * changes.
 */
function stepSeconds(recent: readonly number[], left: number): number {
  const mean = recent.reduce((a, b) => a + b, 0) / recent.length;
  if (recent.length < RECENT) return mean;
  const middle = (recent.length - 1) / 2;
  const [num, den] = recent.reduce(
    ([n, d], seconds, i) => [n + (i - middle) * (seconds - mean), d + (i - middle) ** 2],
    [0, 0],
  );
  const expected = mean + (num / den) * (middle + left / 2);
  return Math.min(mean * MOST_GROWTH, Math.max(mean / MOST_GROWTH, expected));
}

/**
 * Returns the estimated seconds of an evaluation: the duration of the last one, or an estimate from the number of its answers and the speed
 * of the last step.
 */
function evaluationSeconds(config: TrainConfig, lines: readonly Metrics[], heldOut: number): number {
  const known = lines.findLast((line) => 'timing_s/testing' in line);
  if (known) return known['timing_s/testing'];
  const generating = lines.findLast((line) => 'timing_s/gen' in line)?.['timing_s/gen'] ?? 0;
  return (generating * heldOut * (config.rollout.valKwargs.n + 1)) / triesOfStep(config);
}

function evaluationsLeft({ testFreq, totalTrainingSteps: total }: TrainConfig['trainer'], done: number): number {
  const at = (step: number) => (testFreq > 0 ? Math.floor(step / testFreq) : 0);
  return at(total - 1) - at(done) + 1;
}
