/** What the page says of the time that is left, and lines of metrics that come later than others. */
import { expect, test } from 'vitest';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { amended } from '../../demo/app/amended.ts';
import { secondsLeft } from '../../demo/app/progress.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';

const config = resolveTrainConfig({
  name: 'x',
  model: { path: 'x' },
  data: { trainBatchSize: 4, valMaxSamples: 16 },
  actor: { ppoMiniBatchSize: 4 },
  rollout: { n: 4 },
  trainer: { totalTrainingSteps: 40, testFreq: 10, valBeforeTrain: false },
});
const line = (step: number, seconds: number, more: Record<string, number> = {}): Metrics => ({
  'training/global_step': step,
  'timing_s/step': seconds,
  ...more,
});
const steps = (count: number, seconds: (step: number) => number) =>
  Array.from({ length: count }, (_, i) => line(i + 1, seconds(i + 1)));

test('time left is that of the recent steps, with the evaluations to come', () => {
  expect(secondsLeft(config, [])).toBeUndefined();
  // A first step that compiles is forgotten after ten more.
  const lines = steps(30, (step) => (step === 1 ? 500 : 2));
  expect(secondsLeft(config, lines)).toBeCloseTo(10 * 2);
  lines[9] = { ...lines[9], 'timing_s/testing': 7 };
  expect(secondsLeft(config, lines)).toBeCloseTo(10 * 2 + 7);
  expect(
    secondsLeft(
      config,
      steps(40, () => 2),
    ),
  ).toBeUndefined();
});

test('an evaluation that was never done takes what its answers would', () => {
  const lines = [...steps(29, () => 2), line(30, 2, { 'timing_s/gen': 1 })];
  expect(secondsLeft(config, lines)).toBeCloseTo(10 * 2 + (16 * 2) / 16);
});

test('steps that grow are expected to grow, within bounds', () => {
  const growing = secondsLeft(
    config,
    steps(20, (step) => 10 + step / 10),
  )!;
  const same = secondsLeft(
    config,
    steps(20, () => 11.55),
  )!;
  expect(growing).toBeGreaterThan(same);
  expect(
    secondsLeft(
      config,
      steps(20, (step) => step ** 3),
    )! /
      secondsLeft(
        config,
        steps(20, () => 4000),
      )!,
  ).toBeLessThan(2);
});

test('a line that comes later goes into its place', () => {
  const lines = [1, 2].map((step) => ({ 'training/global_step': step, a: step }));
  expect(amended(lines, { 'training/global_step': 0, b: 1 })[0]).toEqual({ 'training/global_step': 0, b: 1 });
  expect(amended(lines, { 'training/global_step': 2, b: 1 })).toEqual([lines[0], { ...lines[1], b: 1 }]);
  expect(amended(lines, { 'training/global_step': 3, b: 1 })).toHaveLength(3);
  expect(lines).toHaveLength(2);
});
