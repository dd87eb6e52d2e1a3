/** Summarises a run's history, using only measured values. */

import type { Metrics } from '../../src/grpo/metrics.ts';
import { passAt1 } from '../../src/report/metricOf.ts';

export interface Measured {
  steps: number;
  /** pass@1 on held-out problems before the first step; undefined if not evaluated. */
  before: number | undefined;
  /** The latest pass@1 that was measured after a step. */
  after: { value: number; step: number } | undefined;
  /** Mean reward of the tries, by step. */
  rewards: { step: number; value: number }[];
  /** Seconds of all steps; 0 = not measured. */
  seconds: number;
  trainedTokens: number;
}

/** Matches the metric of an evaluation of the first held-out problems. */
const QUICK = /^val-aux\/.*\/acc\/first@(\d+)$/;

/** Returns an evaluation of few problems, which a run makes while its reward is replaced; undefined if the line has none. */
export function quickOf(line: Metrics): { value: number; problems: number } | undefined {
  const name = Object.keys(line).find((key) => QUICK.test(key));
  return name === undefined ? undefined : { value: line[name], problems: Number(QUICK.exec(name)![1]) };
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

interface Headline {
  /** Share of problems solved before training and now, or only one of the two; empty = nothing measured. */
  numbers: number[];
  /** Text about `numbers`: which share it is, and of which step. */
  caption: string;
  /** Text with the share of right tries at the newest step; '' = unknown, or already in `numbers`. */
  now: string;
}

/**
 * Returns the headline of a run: the share of held-out problems solved before training and at the newest evaluation. Until then, the share
 * of right tries at the first and the newest step.
 */
export function headlineOf(history: readonly Metrics[], total?: number): Headline {
  const { before, after } = measured(history);
  const trained = history.flatMap((line) => {
    const value = line['critic/acc/mean'];
    return value === undefined ? [] : [{ value, step: line['training/global_step'] }];
  });
  const newest = trained.at(-1);
  const few = history.findLast((line) => quickOf(line) !== undefined);
  if (few && few['training/global_step'] > (after?.step ?? -1)) {
    const { value, problems } = quickOf(few)!;
    const start = before === undefined ? '' : '; all of them before training';
    return {
      numbers: [...(before === undefined ? [] : [before]), value],
      caption: `Share solved, first ${problems} held-out problems, step ${few['training/global_step']}${start}`,
      now: newest ? `Tries of step ${newest.step}: ${newest.value.toFixed(2)} solved` : '',
    };
  }
  if (after)
    return {
      numbers: [...(before === undefined ? [] : [before]), after.value],
      caption: `Share solved, held-out problems, step ${after.step}${total === undefined ? '' : ` of ${total}`}`,
      now: newest ? `Tries of step ${newest.step}: ${newest.value.toFixed(2)} solved` : '',
    };
  const held = before === undefined ? '' : `Held-out, before training: ${before.toFixed(2)}`;
  if (!newest)
    return {
      numbers: before === undefined ? [] : [before],
      caption: before === undefined ? 'Share of problems solved' : 'Share solved, held-out problems, before training',
      now: before === undefined ? 'Appears after step 1' : '',
    };
  const isOne = trained.length === 1;
  return {
    numbers: isOne ? [newest.value] : [trained[0].value, newest.value],
    caption: `Share of tries solved, ${isOne ? 'step' : `steps ${trained[0].step} and`} ${newest.step}`,
    now: held,
  };
}

/** Weight of the previous values in a smoothed curve. */
const SMOOTHING = 0.6;

/** Returns the exponential moving average, without the bias of its start. */
export function smoothed(values: readonly number[]): number[] {
  let [sum, weight] = [0, 0];
  return values.map((value) => {
    sum = SMOOTHING * sum + (1 - SMOOTHING) * value;
    weight = SMOOTHING * weight + (1 - SMOOTHING);
    return sum / weight;
  });
}
