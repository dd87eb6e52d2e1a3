/**
 * Runs live parts of lessons on the GPU: group A of lesson 1, steps of the loops of lessons 3 (one every day) and 5, and all of the appendix. On
 * SwiftShader the results must equal the recorded ones.
 */

import { readFileSync } from 'node:fs';
import { expect, test, vi } from 'vitest';
import { RECORDED as GROUPS } from '../../demo/lessons/1-groups/stills.ts';
import { config, train } from '../../demo/lessons/3-run/run.js';
import { RECORDED } from '../../demo/lessons/3-run/stills.ts';
import * as stale from '../../demo/lessons/5-stale/stale.js';
import { valuesOf } from '../../demo/lessons/5-stale/stills.ts';
import { checkKernel, type KernelExercise } from '../../demo/lessons/kit/checks.ts';
import { triesOf } from '../../demo/lessons/kit/recordings.ts';
import type { ShownStep } from '../../demo/lessons/kit/runLoop.ts';
import { EXERCISES } from '../../demo/lessons/under/exercises.ts';
import { libraryGradient, onGpu } from '../../demo/lessons/under/kernel.ts';
import { scoreTwice } from '../../demo/lessons/under/sentence.ts';
import { DY, errorOf, RECORDED as UNDER, ROW, WEIGHT } from '../../demo/lessons/under/stills.ts';
import { firstGroup } from '../../src/extensions/checks/index.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { createLocalEngine, engineSizes, gsm8kToolTask } from '../../src/index.ts';
import { readCheckpoint } from '../../src/node.ts';
import { loggedRollouts } from '../../src/runs/rollouts.ts';
import { isFull } from './full.ts';

const adapter = await navigator.gpu.requestAdapter();
const onSwiftShader = /swiftshader/i.test(`${adapter?.info.architecture} ${adapter?.info.description}`);

test('group A and the log-probs of the appendix are as they were recorded', async () => {
  const text = readFileSync('configs/gsm8k-tool.yaml', 'utf8');
  const recipe = parseTrainConfig(text, { source: 'gsm8k-tool.yaml', note: () => {} });
  const model = await readCheckpoint('checkpoints/gsm8k-tool');
  const engine = await createLocalEngine({ ...engineSizes(recipe), ...model });
  const samples: Sample[] = [];
  const drawing = { onSample: (sample: Sample) => void samples.push(sample), signal: new AbortController().signal };
  await firstGroup({ config: recipe, engine, task: gsm8kToolTask() }, drawing);
  const scored = await scoreTwice({ config: recipe, engine, task: gsm8kToolTask() }, UNDER);
  engine.destroy();
  expect(scored.cached).toEqual(scored.whole); // bit for bit
  const { tokens, cached, whole } = UNDER;
  if (onSwiftShader) expect(scored).toEqual({ tokens, cached, whole });
  // Tries arrive in the order in which they end, and have no advantage before the group is complete.
  const comparable = (tries: ReturnType<typeof triesOf>) =>
    tries
      .map((one) => JSON.stringify([one.messages, one.score, one.acc, one.stopReason, one.responseTokens, one.extra]))
      .sort();
  const [recorded, drawn] = [triesOf(GROUPS.groups[0], 0), loggedRollouts(samples, 1, samples.length)];
  expect(drawn.map(({ problem }) => problem)).toEqual(recorded.map(({ problem }) => problem));
  if (onSwiftShader) expect(comparable(drawn)).toEqual(comparable(recorded));
});

test('the loop of lesson 3 trains on the GPU as it was recorded', async () => {
  const engine = await createLocalEngine({
    ...engineSizes(config),
    ...(await readCheckpoint('checkpoints/reverse-text')),
  });
  const steps: ShownStep[] = [];
  await train({ engine, show: (step) => steps.push(step), steps: isFull ? 2 : 1 });
  engine.destroy();
  const means = steps.map(({ rewards }) => Number((rewards.reduce((a, b) => a + b) / 256).toPrecision(4)));
  if (onSwiftShader) expect(means).toEqual(RECORDED.runs[0].reward.slice(0, means.length));
  expect(steps.length).toBeGreaterThan(0);
  for (const { gradNorm, metrics } of steps) {
    expect(gradNorm).toBeGreaterThan(0);
    expect(metrics['actor/pg_loss']).toBeCloseTo(0, 4);
  }
});

test.runIf(isFull)('the loop of lesson 5 trains on the GPU as it was recorded', async () => {
  const model = await readCheckpoint('checkpoints/reverse-text');
  const engine = await createLocalEngine({ ...engineSizes(stale.config), ...model });
  const steps: ShownStep[] = [];
  await stale.train({ engine, show: (step) => steps.push(step), steps: 2, delay: 1 });
  engine.destroy();
  const means = steps.map(({ rewards }) => Number((rewards.reduce((a, b) => a + b) / 256).toPrecision(3)));
  if (onSwiftShader) expect(means).toEqual(valuesOf(1, 'grpo', 'reward')[0].slice(0, 2));
  expect(steps).toHaveLength(2);
});

test.runIf(isFull).each([
  ['3-run', 'run.js'],
  ['5-stale', 'stale.js'],
])('the program of lesson %s trains in Node', async (lesson, file) => {
  vi.doMock(`../../demo/lessons/${lesson}/${file}`, async (original) => {
    const loop = await original<typeof stale>();
    return { ...loop, train: (given: Parameters<typeof stale.train>[0]) => loop.train({ ...given, steps: 1 }) };
  });
  const log = vi.spyOn(console, 'log').mockImplementation(() => {});
  await import(`../../demo/lessons/${lesson}/twin.js`);
  expect(log.mock.calls).toEqual([[1, expect.stringMatching(/^0\.\d{3}$/)]]);
  vi.restoreAllMocks();
});

test('the kernel of the appendix: its answer is right, and each mistake gets its own sentence', async () => {
  const exercise = EXERCISES.find(({ kind }) => kind === 'kernel') as KernelExercise;
  const says = async (code: string) => (await checkKernel(exercise, code)).says;
  expect(await checkKernel(exercise, exercise.answer)).toEqual({ ok: true, says: `Right. ${exercise.why}` });
  expect(exercise.wrong).toHaveLength(3);
  for (const wrong of exercise.wrong) expect(await says(wrong.given)).toBe(wrong.says);
  expect((await checkKernel(exercise, exercise.start)).ok).toBe(false);
  expect(await says(exercise.answer.replace('* weight[c]', '* 2.0'))).toMatch(
    /^With 1 x 1 numbers, row 0, column 0 is /,
  );
  const oneLess = exercise.answer.replace(
    'c < params.C; c += THREADS) {\n    y',
    'c + 1u < params.C; c += THREADS) {\n    y',
  );
  expect(oneLess).not.toBe(exercise.answer);
  expect(await says(oneLess)).toMatch(
    /^With 1 x 1 numbers, row 0, column 0 is not written, or not a number, and should be/,
  );
  expect(await checkKernel(exercise, exercise.answer.replace('let start', 'lett start'))).toMatchObject({
    ok: false,
    line: 16,
  });
  expect(
    await says(
      exercise.answer
        .replace('struct Params { C: u32 }', 'struct Params { D: u32 }')
        .replaceAll('params.C', 'params.D'),
    ),
  ).toContain('struct Params');
  expect(await checkKernel(exercise, exercise.answer)).toMatchObject({ ok: true });
});

test('the gradient of the appendix is right on the GPU', async () => {
  const [x, weight, dy] = [ROW, WEIGHT, DY].map((row) => Float32Array.from(row));
  const gradient = [...(await onGpu((gpu) => libraryGradient(gpu, { x, weight, dy })))];
  expect(errorOf(gradient)).toBeLessThan(1e-6);
  if (onSwiftShader) expect(gradient).toEqual(UNDER.kernel);
});
