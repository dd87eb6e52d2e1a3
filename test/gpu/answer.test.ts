/**
 * Tests questions during training: answers arrive token by token, from the start weights and the current ones, and the run does not change.
 */
import { afterAll, expect, test } from 'vitest';
import { answer } from '../../src/extensions/ask/answer.ts';
import { questionOf, questionTokens } from '../../src/extensions/ask/question.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import type { Message } from '../../src/tasks/task.ts';
import { answerSizes } from '../../src/workers/engineSpec.ts';
import { createLocalEngine } from '../../src/workers/localEngine.ts';
import { readShipped } from './readFixture.ts';
import { chatConfig, tinySpec } from './tinySpec.ts';

const task = gsm8kToolTask();
const config = resolveTrainConfig({
  name: 'ask',
  model: { path: 'checkpoints/gsm8k-tool' },
  data: { maxPromptLength: 160, maxResponseLength: 96 },
  rollout: { multiTurn: { enable: true, maxAssistantTurns: 4, maxToolCalls: 3 } },
  trainer: { totalTrainingSteps: 1 },
});
const shipped = await readShipped('checkpoints/gsm8k-tool');
const engine = await createLocalEngine({ ...answerSizes(config, shipped.config, { start: true }), ...shipped });
afterAll(() => engine.destroy());
const options = { config, task, tokenizer: engine.tokenizer, contextLength: 512, greedy: true };

test("an answer arrives token by token, with its calls and the tool's output", async () => {
  for (let number = 0; number < 20; number++) {
    const heard: { tokens: number[][]; messages: Message[] } = { tokens: [], messages: [] };
    const { messages, trajectory } = await answer({
      ...options,
      greedy: false,
      rollout: engine.rollout,
      problem: await questionOf(task, task.train(number, 0).messages[0].content),
      key: [number, 2],
      onTokens: (ids, turn) => (heard.tokens[turn] ??= []).push(...ids),
      onMessage: (message) => heard.messages.push(message),
    });
    expect(heard.messages).toEqual(messages);
    const turns = messages.filter(({ role }) => role === 'assistant');
    const spoken = heard.tokens.map((ids) =>
      engine.tokenizer.decode(Uint32Array.from(ids), { skipSpecialTokens: true }),
    );
    expect(spoken).toEqual(turns.map(({ content }) => content));
    expect(heard.tokens.flat()).toEqual([...trajectory.responseIds].filter((_, i) => trajectory.mask[i] === 1));
    if (messages.length < 3) continue;
    expect(messages.slice(0, 3).map(({ role }) => role)).toEqual(['assistant', 'tool', 'assistant']);
    expect(messages[0].content).toContain('<tool_call>');
    return;
  }
  expect.fail('None of 20 answers has a tool call.');
});

test('start and current weights answer equally until other weights are loaded, and the next message continues', async () => {
  const problem = await questionOf(task, task.train(3, 1).messages[0].content);
  const both = () =>
    Promise.all(
      [engine.judge!, engine.rollout].map(async (rollout) => {
        const { messages, trajectory } = await answer({ ...options, greedy: false, rollout, problem, key: [7, 8] });
        return { messages, versions: [...new Set(trajectory.weightVersions)].filter((version) => version > 0) };
      }),
    );
  const [start, same] = await both();
  expect(same.messages).toEqual(start.messages);
  const zeroed: TensorMap = new Map(
    [...(await engine.model.exportWeights())].map(([name, { shape, data }]) => [
      name,
      { shape, data: data.map((x) => x / 3) },
    ]),
  );
  await engine.model.importWeights(zeroed);
  await engine.rollout.resetCache(37);
  const [before, now] = await both();
  expect(before).toEqual(start);
  expect(now.messages).not.toEqual(start.messages);
  expect(now.versions).toEqual([37]);

  const next = await questionOf(task, 'And 2 more?', [...problem.messages, ...start.messages]);
  expect(next.messages.slice(0, -1)).toEqual([...problem.messages, ...start.messages]);
  expect(questionTokens(options, next)).toBeGreaterThan(questionTokens(options, problem) + 10);
  const { trajectory } = await answer({ ...options, rollout: engine.judge!, problem: next, key: [7, 8] });
  expect(trajectory.responseIds.length).toBeGreaterThan(0);
  const tooLong = await questionOf(task, 'pens '.repeat(450));
  await expect(answer({ ...options, rollout: engine.judge!, problem: tooLong, key: [7, 8] })).rejects.toThrow(
    /at most 416 fit/,
  );
});

test('copying the weights during every step changes no metric of a run', async () => {
  const quiet = await train(async () => {});
  const copies: TensorMap[] = [];
  const asked = await train(async (weights) => void copies.push(await weights()));
  expect(asked).toEqual(quiet);
  expect(copies.length).toBeGreaterThan(9);
  const first = [...copies[0].keys()][0];
  expect(copies.at(-1)!.get(first)!.data).not.toEqual(copies[0].get(first)!.data);
});

/** Trains, and returns metrics without times. `hear` is called at the start of every phase and with every sample. */
async function train(hear: (weights: () => Promise<TensorMap>) => Promise<void>): Promise<Metrics[]> {
  const small = resolveTrainConfig({
    name: 'asked',
    model: { path: 'in memory' },
    data: { trainBatchSize: 2, maxResponseLength: 24, maxPromptLength: 64, valMaxSamples: 5 },
    rollout: { n: 3, maxNumSeqs: 5 },
    actor: { ppoMiniBatchSize: 1, ppoMaxTokenLenPerGpu: 256 },
    trainer: { totalTrainingSteps: 1, testFreq: 1 },
  });
  const model = { ...chatConfig, maxPositionEmbeddings: 128 };
  const trained = await createLocalEngine(tinySpec(small, model, 9));
  const reward: typeof task.reward = ({ response }) => ({ score: response.length % 7, acc: response.length % 2 });
  const hearing: Promise<void>[] = [];
  const now = () => void hearing.push(hear(() => trained.model.exportWeights()));
  const events = { onPhase: now, onSample: now };
  const { history } = await new GrpoTrainer({
    config: small,
    task: { ...task, reward },
    engine: trained,
    ...events,
  }).fit();
  await Promise.all(hearing);
  trained.destroy();
  const isTime = (name: string) => name.startsWith('timing') || name.startsWith('perf/');
  return history.map((metrics) => Object.fromEntries(Object.entries(metrics).filter(([name]) => !isTime(name))));
}
