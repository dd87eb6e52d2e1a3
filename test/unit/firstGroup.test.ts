/** Tests that the first group, generated before a run, equals the first group of step 1, and does not affect the run. */
import { expect, onTestFinished, test, vi } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { firstGroup, timedStep } from '../../src/extensions/checks/firstGroup.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { Task } from '../../src/tasks/task.ts';
import type { ScriptedEngine } from '../scriptedEngine.ts';
import { scriptedEngine, withoutTimes } from '../scriptedRuns.ts';

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

async function twoSteps(engine: ScriptedEngine) {
  const trainer = new GrpoTrainer({ config, task, engine });
  const steps = [await trainer.step(), await trainer.step()];
  const lines = withoutTimes(steps.map(({ metrics }) => metrics));
  return { lines, tokens: steps[0].samples.map(({ trajectory }) => [...trajectory.responseIds]) };
}

test('the first group has the tokens of step 1 and does not change two steps, also if aborted, and after a timed step', async () => {
  const [engine, other] = [scriptedEngine(), scriptedEngine()];
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
  const { generationS, updateS } = (await timed(new AbortController().signal))!;
  expect(Math.min(generationS, updateS)).toBeGreaterThan(0);
  const late = new AbortController();
  const cut = timed(late.signal);
  late.abort();
  expect(await cut).toBeUndefined();
  const second: Sample[] = [];
  const { signal } = new AbortController();
  await firstGroup({ config, engine, task }, { problem: 1, onSample: (sample) => second.push(sample), signal });
  const [after, without] = [await twoSteps(engine), await twoSteps(other)];
  expect(after).toEqual(without);
  for (const [group, drawn] of [tries, second].entries()) {
    const ofStep = without.tokens.slice(3 * group, 3 * group + 3);
    expect(drawn.map(({ trajectory }) => [...trajectory.responseIds].join()).sort()).toEqual(
      ofStep.map((ids) => ids.join()).sort(),
    );
    expect(drawn.every((sample) => sample.group === group && sample.problem.id === `${group}`)).toBe(true);
  }
  expect(without.lines[0]['actor/grad_norm']).toBeGreaterThan(0);
});

test('the estimate of an update repeats the gradient, not the log-probs, per mini-batch and epoch', async () => {
  const engine = scriptedEngine();
  let now = 0;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  onTestFinished(() => clock.mockRestore());
  const { logProbs, forwardBackward } = engine.model;
  engine.model.logProbs = (...args) => ((now += 10), logProbs.apply(engine.model, args));
  engine.model.forwardBackward = (...args) => ((now += 90), forwardBackward.apply(engine.model, args)); // and its log-probs: 100
  const rolloutCorrection = { ...config.algorithm.rolloutCorrection, bypassMode: false }; // with a pass for old log-probs
  const algorithm = { ...config.algorithm, rolloutCorrection };
  const actor = { ...config.actor, ppoMiniBatchSize: 1, ppoEpochs: 3 };
  const { signal } = new AbortController();
  const timed = await timedStep({ config: { ...config, algorithm, actor }, engine, task }, { problems: 2, signal });
  expect(timed).toEqual({ generationS: 0, updateS: (10 + 100 * 2 * 3) / 1000 });
});
