/**
 * Tests runs whose problems depend on their rewards: resumed runs are identical. Also tests named held-out sets, and runs that end early.
 */
import { expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Checkpoint } from '../../src/grpo/types.ts';
import type { ScoredSample, Task } from '../../src/tasks/task.ts';
import { readBack, scriptedEngine } from '../scriptedRuns.ts';
import { anyNumber } from '../stub.ts';

/** Returns a task whose operand depends on the rewards that the task observes. */
function movingTask(): Task {
  let offset = 0;
  return {
    name: 'moving',
    trainSize: 6,
    train: (index) => ({
      id: `${index % 6}/${offset}`,
      messages: [{ role: 'user', content: `${index % 6} plus ${offset}` }],
      answer: '',
    }),
    heldOut: (count) =>
      ['a', 'b'].flatMap((dataSource) =>
        Array.from({ length: count }, (_, i) => ({
          id: `${dataSource}${i}`,
          messages: [{ role: 'user' as const, content: `${i} plus 3` }],
          answer: '',
          dataSource,
        })),
      ),
    reward: ({ responseTokens, problem: { dataSource } }: ScoredSample) => ({
      score: responseTokens % 2,
      acc: dataSource === 'a' ? 1 : 0,
      pred: 'x',
    }),
    observe: (_, rewards) => void (offset = (offset + rewards.filter(({ score }) => score === 1).length) % 10),
    state: () => offset,
    restore: (state) => void (offset = state as number),
  };
}

const configOf = (trainer: object) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 2, maxPromptLength: 16, maxResponseLength: 6, valMaxSamples: 2, sampler: 'difficulty' },
    rollout: { n: 4, maxNumSeqs: 8, valKwargs: { n: 2 } },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 80, optim: { lr: 0.01 } },
    trainer: { totalTrainingSteps: 4, valBeforeTrain: false, testFreq: 0, ...trainer },
  });

function trainerOf(trainer: object = {}) {
  const config = configOf(trainer);
  const engine = scriptedEngine();
  const seen: string[][] = [];
  const checkpoints: Checkpoint[] = [];
  const grpo = new GrpoTrainer({
    config,
    task: movingTask(),
    engine,
    onStep: (_, samples) =>
      void seen.push(samples.map(({ problem, trajectory }) => `${problem.id} ${trajectory.responseIds.join()}`)),
    onCheckpoint: (checkpoint) => void checkpoints.push(checkpoint),
  });
  return { grpo, seen, checkpoints };
}

test('a run that samples by difficulty, on a task that adapts to rewards, resumes exactly from a checkpoint', async () => {
  const first = trainerOf({ saveFreq: 2 });
  await first.grpo.fit();
  const again = trainerOf();
  const checkpoint = first.checkpoints[0];
  expect(Object.keys(checkpoint.state.parts ?? {})).toEqual(expect.arrayContaining(['sampler', 'task']));
  await again.grpo.restore(readBack(checkpoint));
  await again.grpo.fit();
  expect(again.seen).toEqual(first.seen.slice(2));
  const offsets = first.seen.flat().map((text) => text.split(' ')[0].split('/')[1]);
  expect(new Set(offsets).size).toBeGreaterThan(1); // the task has changed
});

test('a checkpoint is due once saveMinutes have passed, 0 is never', async () => {
  const [often, never] = [trainerOf({ saveMinutes: 1e-9 }), trainerOf({ saveMinutes: 0 })];
  const { state } = await often.grpo.fit();
  expect(often.checkpoints.map((checkpoint) => checkpoint.state.step)).toEqual(
    Array.from({ length: state.step }, (_, i) => i + 1),
  );
  const done = never.grpo.fit();
  never.grpo.stop();
  expect(await done).toMatchObject({ stopped: true });
  expect(never.checkpoints).toEqual([]);
});

test('held-out sets have separate metrics; a metric that is good enough ends the run with an evaluation', async () => {
  const { grpo } = trainerOf({ stopWhen: { metric: 'response_length/mean', atLeast: 0 } });
  const { state, history, reached, stopped } = await grpo.fit();
  expect([state.step, stopped, history.length]).toEqual([1, false, 1]);
  expect(reached).toMatch(/^response_length\/mean is [\d.]+, at least 0$/);
  expect(history[0]).toMatchObject({
    'val-core/a/acc/mean@2': 1,
    'val-core/b/acc/mean@2': 0,
    'val-core/a/acc/best@2/mean': 1,
    'val-core/a/acc/maj@2/mean': 1,
    'val-core/b/acc/greedy': 0,
    'pool/unseen': anyNumber,
  });
  const { grpo: byEvaluation } = trainerOf({
    testFreq: 2,
    stopWhen: { metric: 'val-core/a/acc/greedy', atLeast: 1 },
  });
  expect((await byEvaluation.fit()).state.step).toBe(2);
});
