/** The first group before a run is the one that step 1 generates, and the run does not feel it. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { firstGroup, timedStep } from '../../src/grpo/firstGroup.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { initWeights } from '../../src/model/params.ts';
import { buildGsm8kTokenizer } from '../../src/tasks/gsm8k/tokenizer.ts';
import type { Task } from '../../src/tasks/task.ts';
import { createLocalEngine, engineSizes, type LocalEngine } from '../../src/workers/localEngine.ts';
import { tinyConfig } from './tinyModel.ts';

const config = resolveTrainConfig({
  name: 'tiny',
  model: { path: 'x' },
  data: { trainBatchSize: 2, maxPromptLength: 48, maxResponseLength: 12 },
  rollout: { n: 3, maxNumSeqs: 6 },
  actor: { ppoMiniBatchSize: 2, optim: { lr: 1e-2 } },
  trainer: { totalTrainingSteps: 2, valBeforeTrain: false },
});

const task: Task = {
  name: 'odd',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3 is what?` }], answer: '' }),
  heldOut: () => [],
  reward: ({ response }) => ({ score: response.length % 2, acc: response.length % 2 }),
};

const engines: LocalEngine[] = [];
beforeAll(async () => {
  const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = buildGsm8kTokenizer();
  const model = { ...tinyConfig, vocabSize: 512 };
  const spec = { ...engineSizes(config), config: model, weights: initWeights(model, 3) };
  for (let i = 0; i < 2; i++) engines.push(await createLocalEngine({ ...spec, tokenizerJson, tokenizerConfigJson }));
}, 120_000);
afterAll(() => engines.forEach((engine) => engine.destroy()));

async function twoSteps(engine: LocalEngine) {
  const trainer = new GrpoTrainer({ config, task, engine });
  const steps = [await trainer.step(), await trainer.step()];
  const lines = steps.map(({ metrics }) => Object.entries(metrics).filter(([name]) => !/^(timing|perf)/.test(name)));
  return { lines, tokens: steps[0].samples.map(({ trajectory }) => [...trajectory.responseIds]) };
}

test('the same tokens as step 1, and two steps that come out the same; ended on the way as well, and after a timed step', async () => {
  const [engine, other] = engines;
  const tries: Sample[] = [];
  const ending = new AbortController();
  await firstGroup(
    { config, engine, task },
    { onSample: (sample) => tries.push(sample), signal: new AbortController().signal },
  );
  const ended = firstGroup({ config, engine, task }, { onSample: () => {}, signal: ending.signal });
  ending.abort();
  await ended;
  const timed = (signal: AbortSignal) => timedStep({ config, engine, task }, { problems: 2, signal });
  expect(await timed(new AbortController().signal)).toBeGreaterThan(0);
  const late = new AbortController();
  const cut = timed(late.signal);
  late.abort();
  expect(await cut).toBeUndefined();
  const [after, without] = [await twoSteps(engine), await twoSteps(other)];
  expect(after).toEqual(without);
  const tokens = tries.map(({ trajectory }) => trajectory.responseIds.join()).sort();
  expect(tokens).toEqual(
    without.tokens
      .slice(0, 3)
      .map((ids) => ids.join())
      .sort(),
  );
  expect(without.lines[0].find(([name]) => name === 'actor/grad_norm')![1]).toBeGreaterThan(0);
});
