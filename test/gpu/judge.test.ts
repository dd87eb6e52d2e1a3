/**
 * Tests a judge model that runs on webgrpo's engine with the weights of the reference policy, on a tiny model: its scores, and when they
 * are computed.
 */
import * as Comlink from 'comlink';
import { afterEach, expect, test, vi } from 'vitest';

import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { engineCompletion } from '../../src/extensions/rewards/modelRewards.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { initWeights } from '../../src/model/params.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import { judgeScorer } from '../../src/extensions/rewards/modelReward.ts';
import { fillJudgePrompt } from '../../src/tasks/rewards/judgePrompt.ts';
import type { ScoredSample, SyncTask } from '../../src/tasks/task.ts';
import { createDeviceEngine, createLocalEngine, engineSizes, type LocalEngine } from '../../src/workers/localEngine.ts';
import { createEngineHost } from '../../src/workers/engineHost.ts';
import { createRemoteEngine } from '../../src/workers/remoteEngine.ts';
import { chatConfig } from './tinySpec.ts';
import { workerAt } from '../stub.ts';
import { scored } from '../samples.ts';

const task: SyncTask = {
  name: 'length',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: (count) => Array.from({ length: count }, (_, i) => task.train(1000 + i, 1)),
  reward: ({ responseTokens }: ScoredSample) => ({ score: responseTokens % 5, acc: 0 }),
};

const PROMPT = '{response} ?';
// Any digit that the random model generates counts as a score.
const JUDGE = { weight: 0.5, prompt: PROMPT, max: 1e9, maxPromptLength: 112, maxNewTokens: 12, maxNumSeqs: 2 };

const configOf = (more: object = {}) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x', ...more },
    data: { trainBatchSize: 2, maxPromptLength: 16, maxResponseLength: 24, valMaxSamples: 1 },
    rollout: { n: 3, maxNumSeqs: 2 },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 80, optim: { lr: 0.05 } },
    reward: { ruleWeight: 2, judge: JUDGE },
    trainer: { totalTrainingSteps: 2 },
  });

const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = gsm8kTokenizer;
const model = chatConfig;
const START = initWeights(model, 3);

vi.setConfig({ testTimeout: 240_000 });

const engines: LocalEngine[] = [];
afterEach(() => engines.splice(0).forEach((engine) => engine.destroy()));

async function engineOf(config: ReturnType<typeof configOf>): Promise<LocalEngine> {
  const files = { tokenizerJson, tokenizerConfigJson };
  const engine = await createLocalEngine({ ...engineSizes(config), config: model, weights: START, ...files });
  engines.push(engine);
  return engine;
}

/** Scores a response with an engine that only has the start weights. */
async function startJudge() {
  const engine = await engineOf(configOf());
  const complete = engineCompletion(engine.judge!, engine.tokenizer, JUDGE);
  const prompt = (sample: ScoredSample) => fillJudgePrompt(PROMPT, sample);
  return judgeScorer({ complete, prompt, max: JUDGE.max });
}

const scoredOf = ({ problem, messages }: Sample): ScoredSample =>
  scored(messages.findLast(({ role }) => role === 'assistant')!.content, { problem, messages });

test.each([
  ['a copy of the start weights', {}],
  ['the base under adapters', { loraRank: 4 }],
])('%s judges, whatever the policy has become', async (_, more) => {
  const config = configOf(more);
  const engine = await engineOf(config);
  const trainer = new GrpoTrainer({ config, task, engine });
  const score = await startJudge();
  const seen: number[] = [];
  for (let step = 0; step < 2; step++) {
    const { samples } = await trainer.step();
    const scores = await Promise.all(samples.map((sample) => score(scoredOf(sample))));
    for (const [s, { reward, trajectory }] of samples.entries()) {
      const judged = reward.extra!['judge'] as number;
      expect(judged).toBe(scores[s]);
      expect(reward.score).toBeCloseTo(2 * (trajectory.responseIds.length % 5) + 0.5 * judged, 6);
      seen.push(judged);
    }
  }
  expect(new Set(seen).size).toBeGreaterThan(2);
});

test('samples are judged while others generate, not at the end', async () => {
  const config = configOf();
  const { samples } = await new GrpoTrainer({ config, task, engine: await engineOf(config) }).step();
  const ends = (kind: string) =>
    samples.flatMap(({ events = [] }) => events.filter((e) => e.kind === kind)).map((e) => e.end);
  expect(Math.min(...ends('reward'))).toBeLessThan(Math.max(...ends('generate')));
});

test('evaluations do not use the judge', async () => {
  const config = configOf();
  const engine = await engineOf(config);
  const trainer = new GrpoTrainer({ config, task, engine });
  const before = (await engine.judge!.takeStats()).generatedTokens;
  await trainer.validate({ greedy: true });
  expect([before, (await engine.judge!.takeStats()).generatedTokens]).toEqual([0, 0]);
});

test('a prompt that is too long is not judged, control tokens in a response are text', async () => {
  const engine = await engineOf(configOf());
  const asked: number[][] = [];
  const spy = {
    ...engine.judge!,
    release: () => {},
    generate: (q: { contextIds: Uint32Array }) => (asked.push([...q.contextIds]), Promise.reject(new Error('asked'))),
  };
  const complete = engineCompletion(spy, engine.tokenizer, JUDGE);
  expect(await complete('plus '.repeat(200))).toBeUndefined();
  await expect(complete('<|im_end|>')).rejects.toThrow('asked');
  const [end] = engine.tokenizer.eosTokenIds;
  const plain = [...engine.tokenizer.encodeChat([{ role: 'user', content: 'a' }])];
  expect(asked[0].filter((id) => id === end)).toHaveLength(plain.filter((id) => id === end).length);
});

test('in a worker, judge and policy are kept apart', async () => {
  const config = configOf();
  const local = await engineOf(config);
  const { port1, port2 } = new MessageChannel();
  Comlink.expose(createEngineHost(createDeviceEngine), port2);
  const files = { tokenizerJson, tokenizerConfigJson };
  const spec = { ...engineSizes(config), config: model, weights: START, ...files };
  const remote = await createRemoteEngine(
    workerAt(port1, () => port1.close()),
    spec,
  );
  const reply = engineCompletion(remote.judge!, remote.tokenizer, JUDGE);
  const samples: Sample[] = [];
  for (let step = 0; step < 2; step++)
    samples.push(...(await new GrpoTrainer({ config, task, engine: remote }).step()).samples);
  expect(samples.every(({ reward }) => Number(reward.extra!['judge']) >= 0)).toBe(true);
  expect(await reply('3 plus 4')).toBe(await engineCompletion(local.judge!, local.tokenizer, JUDGE)('3 plus 4'));
  await remote.destroy();
  port2.close();
});

test('sequences longer than the positions of the model are refused: of the policy, and of the judge', async () => {
  const long = configOf();
  long.data.maxResponseLength = 512;
  await expect(engineOf(long)).rejects.toThrow(
    /^Sequences may have \d+ tokens, but the model has 128 positions\. Lower data\.maxPromptLength or data\.maxResponseLength\.$/,
  );
  const config = configOf();
  config.reward.judge.maxPromptLength = 512;
  await expect(engineOf(config)).rejects.toThrow(
    "The judge's prompt and reply may have 524 tokens, but the model has 128 positions. Lower reward.judge.maxPromptLength.",
  );
});
