import { expect, test } from 'vitest';
import { DeviceLostError } from '../../src/errors.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Checkpoint } from '../../src/grpo/types.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { TestGate } from '../scripted/gate.ts';
import { solveWordProblem } from '../scripted/solver.ts';
import { ScriptedEngine } from '../scriptedEngine.ts';
import { tokenizer } from '../scriptedTurns.ts';

function runOf(steps: number, gate = new TestGate(), seed = 1) {
  const history: Metrics[] = [];
  const checkpoints: Checkpoint[] = [];
  const config = resolveTrainConfig({
    ...{ name: 'scripted', seed, model: { path: 'in memory' }, rollout: { n: 8 } },
    data: { trainBatchSize: 8, maxPromptLength: 100, maxResponseLength: 120, valMaxSamples: 16 },
    actor: { ppoMiniBatchSize: 8, optim: { lr: 1e-3 } },
    trainer: { totalTrainingSteps: steps, saveFreq: 1, testFreq: 0, valBeforeTrain: false },
  });
  const engine = new ScriptedEngine({ tokenizer, solve: solveWordProblem, gate });
  const trainer = new GrpoTrainer({
    ...{ config, engine, task: gsm8kToolTask() },
    onStep: (metrics) => void history.push(metrics),
    onCheckpoint: (checkpoint) => void checkpoints.push(checkpoint),
  });
  return { trainer, engine, history, checkpoints };
}

const untimed = (metrics: Metrics) => Object.entries(metrics).filter(([name]) => !/^(timing|perf)/.test(name));

test('rewarded behaviour becomes more frequent, with tool calls; sampled log-probs equal the scored ones', async () => {
  const { trainer, history } = runOf(12);
  await trainer.fit();
  const rewards = history.map((line) => line['critic/score/mean']);
  const [first, last] = [rewards.slice(0, 3), rewards.slice(-3)].map((some) => some.reduce((a, b) => a + b) / 3);
  expect(last).toBeGreaterThan(first + 0.25);
  expect(Math.max(...history.map((line) => line['training/rollout_probs_diff_max']))).toBe(0);
  expect(history.at(-1)?.['num_turns/mean'] ?? 0).toBeGreaterThan(1.5);
});

test('runs repeat bit for bit, after a checkpoint too; another seed gives another run', async () => {
  const [whole, again, other] = [runOf(4), runOf(4), runOf(4, undefined, 2)];
  for (const { trainer } of [whole, again, other]) await trainer.fit();
  expect(again.history.map(untimed)).toEqual(whole.history.map(untimed));
  expect(other.history.map(untimed)).not.toEqual(whole.history.map(untimed));
  const resumed = runOf(4);
  await resumed.trainer.restore(whole.checkpoints[1]);
  await resumed.trainer.fit();
  expect(resumed.history.map(untimed)).toEqual(whole.history.slice(2).map(untimed));
  expect(await resumed.engine.model.exportWeights()).toEqual(await whole.engine.model.exportWeights());
});

test('steps end and fail when a test says so, and a lost device stays lost', async () => {
  const gate = new TestGate();
  gate.upTo(1);
  const { trainer, engine, history } = runOf(4, gate);
  const fitting = trainer.fit();
  await gate.reached(2);
  expect(history).toHaveLength(1);
  gate.fail(3, new DeviceLostError('destroyed', 'taken'));
  gate.upTo(3);
  await expect(fitting).rejects.toThrow('taken');
  expect(history).toHaveLength(2);
  await expect(engine.model.exportWeights()).rejects.toThrow(DeviceLostError);
  await expect(engine.untilLost()).rejects.toThrow('taken');
});

test('a held turn has half of its tokens; it is aborted with them, or finished with newer weights', async () => {
  const gate = new TestGate();
  gate.upTo(0, 'turn');
  const engine = new ScriptedEngine({ tokenizer, gate, says: () => 'one two three' });
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 50, stopTokenIds: tokenizer.eosTokenIds };
  const ask = (requestId: string) =>
    engine.rollout.generate({ requestId, contextIds: Uint32Array.of(1, 2), promptLength: 2, key: [1, 2], sampling });
  const [aborted, ended] = [ask('a'), ask('b')];
  await gate.reached(2, 'turn');
  const [{ tokenIds: half } = { tokenIds: [] }] = await engine.rollout.drawnSoFar(['a']);
  engine.rollout.abort(['a']);
  expect(await aborted).toMatchObject({ stopReason: 'aborted', tokenIds: half });
  engine.rollout.resetCache(7);
  gate.open();
  const { tokenIds, stopReason, weightVersions } = await ended;
  expect([stopReason, tokenIds.length > half.length]).toEqual(['stop', true]);
  expect(new Set(weightVersions)).toEqual(new Set([0, 7]));
});
