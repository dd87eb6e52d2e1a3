/** Tests over-sampling and partial rollout on a scripted engine: steps end early, and nothing is lost. */
import { expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { ScoredSample, Task } from '../../src/tasks/task.ts';
import type { Gate } from '../scripted/gate.ts';
import { scriptedEngine } from '../scriptedRuns.ts';

const task: Task = {
  name: 'length',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: () => [],
  reward: ({ responseTokens }: ScoredSample) => ({ score: responseTokens % 5, acc: 0 }),
};

/** Rewarded texts: a random model generates them now and then, so that rewards and lengths of answers differ. */
const STOP = ['w'];
const configOf = (partialRollout: boolean) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 2, maxPromptLength: 16, maxResponseLength: 64, valMaxSamples: 1 },
    rollout: { n: 4, maxNumSeqs: 12, overSampleRate: 1.5, partialRollout, stop: STOP },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 160, optim: { lr: 1e-3 } },
  });

/** Before the update of a step, two of its groups end their turns. The turns of the other groups wait here, and end after it. */
const held: (() => void)[] = [];
let turns = 0;
function letGo(): undefined {
  turns = 0;
  for (const pass of held.splice(0)) pass();
}
const gate: Gate = {
  at(moment) {
    if (moment === 'update') return letGo();
    return ++turns > 8 ? new Promise((pass) => held.push(pass)) : undefined;
  },
};
const engine = scriptedEngine({ gate });
const expectAllReleased = () => expect([...engine.rollout.held]).toEqual([]);

async function fit(partial: boolean, steps: number) {
  const config = configOf(partial);
  Object.assign(config.trainer, { totalTrainingSteps: steps, testFreq: 0, valBeforeTrain: false });
  config.data.valMaxSamples = 0;
  const [taken, scored]: [Sample[][], string[]] = [[], []];
  const trainer = new GrpoTrainer({
    config,
    task,
    engine,
    onStep: (_, samples) => void taken.push(samples),
    onSample: ({ problem, trajectory }) => {
      if (trajectory.stopReason !== 'aborted') scored.push(problem.id);
    },
  });
  const { history, state } = await trainer.fit();
  expectAllReleased();
  return { taken, scored, history, state, trainer };
}

const versionsOf = ({ trajectory: { mask, weightVersions } }: Sample) =>
  [...weightVersions!].filter((_, t) => mask[t] === 1);

test('partial rollout: what a step leaves is finished later under new weights, and trained on once', async () => {
  const { taken, history, state } = await fit(true, 6);
  const samples = taken.flat();
  expect(taken.map((step) => step.length)).toEqual(Array(6).fill(8));
  expect(samples.map(({ trajectory }) => trajectory.stopReason)).not.toContain('aborted');
  const groups = taken.map((step) => new Set(step.map(({ group }) => group)));
  expect(new Set(groups.flatMap((group) => [...group])).size).toBe(12);
  for (const versions of samples.map(versionsOf)) expect(versions).toEqual([...versions].sort((a, b) => a - b));
  expect(samples.some((sample) => new Set(versionsOf(sample)).size > 1)).toBe(true);
  expect(Math.max(...history.map((metrics) => metrics['training/stale_tokens_share']))).toBeGreaterThan(0);
  for (const metrics of history) expect(metrics['training/carried_groups']).toBe(3); // 5 in flight, 2 taken
  expect(state.carried).toHaveLength(3);
  expect(state.problems).toBe(15);
});

test.each([
  ['goes on with the groups that were under way', true],
  ['starts them over from an old checkpoint, which only names them', false],
])('a resumed run %s', async (_, hasSamples) => {
  const { trainer, state } = await fit(true, 2);
  const again = new GrpoTrainer({ config: configOf(true), task, engine });
  const checkpoint = await trainer.checkpoint();
  expect(checkpoint.state.parts).toHaveProperty('inFlight');
  await again.restore(hasSamples ? checkpoint : { ...checkpoint, state });
  const { samples } = await again.step();
  const old = samples.filter((sample) => versionsOf(sample)[0] < 2);
  if (!hasSamples) expect(old).toEqual([]);
  expect(old.length > 0).toBe(hasSamples);
  const seen = [...new Set(samples.map(({ problem }) => Number(problem.id)))];
  const open = [...seen, ...again.state.carried!].sort((a, b) => a - b);
  expect(open).toEqual([...state.carried!, state.problems, state.problems + 1].sort((a, b) => a - b));
  again.stop();
  await again.fit();
  expectAllReleased();
});

test('without partial rollout, unfinished groups are aborted, and every slot is free', async () => {
  const { taken, history } = await fit(false, 3);
  const samples = taken.flat();
  expect(samples).toHaveLength(24);
  expect(samples.map(({ trajectory }) => trajectory.stopReason)).not.toContain('aborted');
  for (const metrics of history) {
    expect(metrics['training/carried_groups']).toBe(0);
    expect(metrics['training/stale_tokens_share']).toBe(0);
  }
});

test.each(['generation', 'update'])('partial rollout: a failed %s ends the carried groups too', async (where) => {
  const config = configOf(true);
  let armed = false;
  const fault = (): never => {
    throw new Error('the fault');
  };
  const reward: Task['reward'] = (sample) => (armed && where === 'generation' ? fault() : task.reward(sample));
  const trainer = new GrpoTrainer({
    config,
    task: { ...task, reward },
    engine,
    advantage: (_, samples) => {
      if (armed && where === 'update') fault();
      return samples.map(({ trajectory, reward: { score } }) => [...trajectory.responseIds].map(() => score));
    },
  });
  await trainer.step();
  const { problems, carried } = trainer.state;
  expect(carried).toHaveLength(3);
  armed = true;
  await expect(trainer.step()).rejects.toThrow('the fault');
  letGo();
  expect(trainer.state).toMatchObject({ step: 1, problems, carried });
  expectAllReleased(); // nothing is in use or left over
  armed = false;
  const { samples } = await trainer.step();
  expect(samples).toHaveLength(8);
  trainer.stop();
  await trainer.fit();
  expectAllReleased();
});
