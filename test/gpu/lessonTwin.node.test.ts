/** Tests the program of lesson 7 that makes faulty runs: a small step with each fault shows what the lesson says about the fault. */

import type { Metrics } from '../../src/grpo/metrics.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { expect, test } from 'vitest';
import { isFull } from './full.ts';
import { train } from '../../demo/lessons/7-faults/twin.js';

const SMALL = [
  ...['trainer.totalTrainingSteps=1', 'trainer.testFreq=0', 'trainer.valBeforeTrain=false', 'data.valMaxSamples=1'],
  ...['data.trainBatchSize=2', 'actor.ppoMiniBatchSize=2', 'rollout.n=4'],
];

async function firstStep(fault: string): Promise<{ metrics: Metrics; samples: Sample[] }> {
  const steps: { metrics: Metrics; samples: Sample[] }[] = [];
  await train(fault, SMALL, (metrics, samples) => void steps.push({ metrics, samples }));
  return steps[0];
}

/** Timeout of a test in milliseconds. The first test compiles all kernels, which takes a busy machine more than a minute. */
const GUARD_MS = 300_000;

const differ = 'training/rollout_probs_diff_max';

test(
  'a sound step pushes right tries, pays for them, and has one set of probabilities',
  async () => {
    const { metrics, samples } = await firstStep('none');
    expect(metrics[differ]).toBe(0);
    expect(metrics['critic/score/mean']).toBe(metrics['critic/acc/mean']);
    for (const { reward, advantage } of samples) expect(advantage! * (reward.score - 0.5)).toBeGreaterThanOrEqual(0);
  },
  GUARD_MS,
);

type Shows = (step: { metrics: Metrics; samples: Sample[] }) => boolean;
const FAULTS: [string, Shows][] = [
  ['cut', ({ metrics }) => metrics['stop/max_tokens'] > 0],
  ['colder', ({ metrics }) => metrics[differ] >= 0.02],
  ['price', ({ metrics }) => metrics['critic/score/mean'] < metrics['critic/acc/mean']],
  ['mixed', ({ samples }) => samples.some(({ reward, advantage }) => advantage! * (reward.score - 0.5) < 0)],
];
test.each(isFull ? FAULTS : FAULTS.slice(0, 1))('the fault "%s" shows in its first step', async (fault, shows) => {
  expect(shows(await firstStep(fault))).toBe(true);
});
