/** Summarises a run's history, using only measured values. */

import type { Metrics } from '../../src/grpo/metrics.ts';
import { passAt1 } from '../../src/report/metricOf.ts';

export interface Measured {
  steps: number;
  /** pass@1 on held-out problems before the first step; undefined if not evaluated. */
  before: number | undefined;
  /** The latest pass@1 after a step. */
  after: { value: number; step: number } | undefined;
  /** Mean reward of the tries of each step. */
  rewards: { step: number; value: number }[];
  /** Seconds of all steps; 0 = not measured. */
  seconds: number;
  trainedTokens: number;
}

/** Returns the measured values of a history. */
export function measured(history: readonly Metrics[]): Measured {
  const evaluations = history.flatMap((line) => {
    const value = passAt1(line);
    return value === undefined ? [] : [{ value, step: line['training/global_step'] }];
  });
  return {
    steps: history.at(-1)?.['training/global_step'] ?? 0,
    before: evaluations.find(({ step }) => step === 0)?.value,
    after: evaluations.findLast(({ step }) => step > 0),
    rewards: history.flatMap((line) => {
      const value = line['critic/score/mean'];
      return value === undefined ? [] : [{ step: line['training/global_step'], value }];
    }),
    seconds: sumOf(history, 'timing_s/step') + sumOf(history, 'timing_s/testing'),
    trainedTokens: sumOf(history, 'perf/trained_tokens'),
  };
}

/** Returns the sum of a metric over the lines that have it. */
export const sumOf = (lines: readonly Metrics[], name: string): number =>
  lines.reduce((total, line) => total + (line[name] ?? 0), 0);
