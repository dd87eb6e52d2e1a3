/** Tests the recipes of the page: it offers every config that needs no file, and the figures on each card match the recipe. */

import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  costOf,
  factorOf,
  inWords,
  keepStepTime,
  recipeSeconds,
  recordedSeconds,
  speed,
} from '../../demo/state/estimate.ts';
import { adapter } from '../../demo/state/notices.ts';
import { history } from '../../demo/state/page.ts';
import type { Limits } from '../../demo/engine/limits.ts';
import { machineInWords } from '../../demo/state/machine.ts';
import { RECORDED } from '../../demo/state/recordedRecipes.ts';
import { RECIPES } from '../../demo/state/recipes.ts';
import { parseSftConfig } from '../../src/extensions/sft/text.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { freshModelConfig } from '../../src/extensions/sft/sft.ts';
import { type ModelConfig, parseModelConfig } from '../../src/model/config.ts';
import { engineSizes } from '../../src/workers/engineSpec.ts';
import { planMemory, totalBytes } from '../../src/workers/memoryPlan.ts';

const textOf = (path: string) => readFileSync(path, 'utf8');
const configOf = (name: string) => parseTrainConfig(textOf(`configs/${name}.yaml`), { source: name });

function modelOf({ model: { path } }: TrainConfig): ModelConfig {
  if (!path.endsWith('.yaml')) return parseModelConfig(JSON.parse(textOf(`${path}/config.json`)));
  const supervised = parseSftConfig(textOf(path), { source: path });
  return freshModelConfig(supervised, supervised.model.vocabSize);
}

test("the page's recipes are those of configs/ that need no file of the user", () => {
  const names = readdirSync('configs')
    .filter((file) => file.endsWith('.yaml'))
    .map((file) => file.replace('.yaml', ''));
  const free = names.filter((name) => !name.endsWith('-sft') && configOf(name).task.path === undefined);
  expect(RECIPES.map(({ name }) => name).sort()).toEqual(free.sort());
});

describe.each(Object.entries(RECORDED))('what is recorded of %s', (name, recorded) => {
  const config = configOf(name);

  test('recorded figures belong to the current recipe', () => {
    const { steps, tries, evaluated, tokens } = recorded;
    expect({ steps, tries, evaluated, tokens }).toEqual({
      steps: config.trainer.totalTrainingSteps,
      tries: config.data.trainBatchSize * config.rollout.n,
      evaluated: config.data.valMaxSamples,
      tokens: config.data.maxResponseLength,
    });
    expect(recordedSeconds(config)).toBeCloseTo(recipeSeconds(recorded), 6);
    expect(recorded.seconds.warmStart > 0).toBe(config.model.path.endsWith('.yaml'));
  });

  test('has the bytes of the memory plan', () => {
    const bytes = totalBytes(planMemory({ config: modelOf(config), ...engineSizes(config) }));
    expect(recorded.memoryMib).toBe(Math.round(bytes / 2 ** 20));
  });
});

test('the estimated time depends on the configured tries, steps and evaluations', () => {
  const config = configOf('reverse-text');
  const { seconds } = RECORDED['reverse-text'];
  const twice = { ...config, rollout: { ...config.rollout, n: 2 * config.rollout.n } };
  expect(recordedSeconds(twice)! - recordedSeconds(config)!).toBeCloseTo(100 * seconds.step, 6);
  const often = { ...config, trainer: { ...config.trainer, testFreq: 10 } };
  expect(recordedSeconds(often)! - recordedSeconds(config)!).toBeCloseTo(9 * seconds.evaluation, 6);
});

test('without a recorded run of the same recipe, model, task and length of answers, the time is unknown', () => {
  const config = configOf('gsm8k-tool');
  const others: TrainConfig[] = [
    { ...config, name: 'mine' },
    { ...config, model: { ...config.model, path: 'HuggingFaceTB/SmolLM2-135M-Instruct' } },
    { ...config, task: { ...config.task, module: './mine.js' } },
    { ...config, data: { ...config.data, maxResponseLength: 320 } },
  ];
  for (const other of others) {
    expect(recordedSeconds(other)).toBeUndefined();
    expect(factorOf(other, { 'timing_s/step': 400 })).toBeUndefined();
    expect(costOf(other, config)).toMatch(/ steps: time known after a few steps\.$/);
  }
  expect(costOf(config, config)).toMatch(/: about .*, 249 MB of GPU memory\.$/);
});

test('an adapter is measured by steps of the recorded sizes alone', () => {
  const config = configOf('reverse-text');
  const step = { 'timing_s/step': 2 * RECORDED['reverse-text'].seconds.step };
  expect(factorOf(config, step)).toBeCloseTo(2, 6);
  expect(factorOf({ ...config, data: { ...config.data, trainBatchSize: 2 } }, step)).toBeUndefined();
  expect(factorOf({ ...config, data: { ...config.data, maxResponseLength: 3 } }, step)).toBeUndefined();
});

test('only a step that this GPU has trained is its measurement, from the second step on', () => {
  const config = configOf('reverse-text');
  adapter.value = { name: 'This GPU', isSoftware: false };
  const step = (at: number, factor: number) => ({
    'training/global_step': at,
    'timing_s/step': factor * RECORDED['reverse-text'].seconds.step,
  });
  history.value = [step(9, 100)]; // of a run that was trained elsewhere
  keepStepTime(config, step(1, 50));
  expect(speed.value).toBeUndefined();
  keepStepTime(config, step(2, 3));
  expect(speed.value).toBeCloseTo(3, 6);
});

test.each([
  [1, 'about 5 s'],
  [48, 'about 50 s'],
  [59, 'about 1 min'],
  [100, 'about 1.5 min'],
  [260, 'about 4 min'],
  [7200, 'about 2 h'],
])('%i seconds are %s', (seconds, words) => expect(inWords(seconds)).toBe(words));

test('the sentence about this machine has the measured step, the predicted one, and counted arithmetic', () => {
  const config = configOf('gsm8k-tool');
  const line = (step: number) => ({
    ...{ 'training/global_step': step, 'timing_s/step': 2, 'timing_s/gen': 1, 'timing_s/update_actor': 0.5 },
    ...{ 'perf/generated_tokens': 3000, 'perf/trained_tokens': 4000 },
  });
  const told = { config, model: modelOf(config), adapter: 'A GPU' };
  expect(machineInWords({ ...told, history: [line(1)] }), 'the first step compiles kernels').toBeUndefined();
  const parameters = 409_056;
  const text = machineInWords({ ...told, history: [line(1), line(2), line(3)] })!;
  expect(text).toMatch(
    /^webgrpo \S+ on A GPU: Word problems with a calculator, 16 problems \u00d7 8 tries; 2\.?0* s per step/,
  );
  expect(text).not.toContain('predicted');
  expect(text).toContain(`the recorded run on two CPU cores: ${RECORDED['gsm8k-tool'].seconds.step} s`);
  const [decoding, training] = [...text.matchAll(/\(([\d.]+) GFLOP/g)].map(([, value]) => Number(value));
  expect(decoding / ((2 * parameters * 3000) / 1e9)).toBeCloseTo(1, 1);
  expect(training / ((6 * parameters * 8000) / 1e9)).toBeCloseTo(1, 1);
});

test('a prediction is counted work at the limits of the GPU, beside what was measured', () => {
  const config = configOf('gsm8k-tool');
  const history = [1, 2, 3].map((step) => ({
    ...{ 'training/global_step': step, 'timing_s/step': 2, 'timing_s/gen': 1, 'timing_s/update_actor': 0.5 },
    ...{ 'perf/generated_tokens': 3000, 'perf/trained_tokens': 4000, 'response_length/max': 60 },
  }));
  const [dispatches, model] = [{ decodeStep: 30, microBatch: 110, optimizerStep: 3 }, modelOf(config)];
  const told = (limits: Omit<Limits, 'dispatches'>) =>
    machineInWords({ config, model, adapter: 'A GPU', history, limits: { ...limits, dispatches } })!;
  const fast = { gflops: 1e9, gbPerS: 1e9, dispatchUs: 0 };
  const seconds = (text: string) =>
    text
      .match(/per dispatch\): (\S+) s \(generating (\S+) s, updating (\S+) s\)/)!
      .slice(1)
      .map(Number);
  const updates = config.data.trainBatchSize / config.actor.ppoMiniBatchSize;
  // 60 passes, because 128 tries of at most 60 tokens fit into one batch.
  const byLaunch = seconds(told({ ...fast, dispatchUs: 100 }));
  expect(byLaunch[1]).toBeCloseTo((60 * 30 * 100) / 1e6, 2);
  expect(byLaunch[2]).toBeCloseTo((updates * (110 + 3) * 100) / 1e6, 2);
  const byArithmetic = seconds(told({ ...fast, gflops: 1 }));
  expect(byArithmetic[1] / ((2 * 409_056 * 3000) / 1e9)).toBeCloseTo(1, 1);
  expect(byArithmetic[2] / ((6 * 409_056 * 4000) / 1e9)).toBeCloseTo(1, 1);
  const byBytes = seconds(told({ ...fast, gbPerS: 0.1 }));
  expect(byBytes[1] / ((60 * 4 * 409_056) / 1e8)).toBeCloseTo(1, 1);
  expect(told({ ...fast, dispatchUs: 100 })).toMatch(
    /; predicted from the limits of this GPU \(.* GFLOP\/s, .* GB\/s, 100 \u00b5s per dispatch\): \S+ s \(.*\); the step took \S+ times as long; /,
  );
});
