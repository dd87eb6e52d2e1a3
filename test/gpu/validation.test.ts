/** Tests validation: sampled and greedy answers of a problem form one group, so its prompt is computed once. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { Evaluation, validate } from '../../src/grpo/generate/validate.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { RolloutStats } from '../../src/rollout/types.ts';
import type { Task } from '../../src/tasks/task.ts';
import { createLocalEngine, type LocalEngine } from '../../src/workers/localEngine.ts';
import { chatConfig, tinySpec } from './tinySpec.ts';

const PROBLEMS = 30;

const configOf = (valKwargs: object) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 2, maxPromptLength: 48, maxResponseLength: 12, valMaxSamples: PROBLEMS },
    rollout: { n: 2, maxNumSeqs: 6, valKwargs },
    actor: { ppoMiniBatchSize: 2 },
    trainer: { totalTrainingSteps: 1 },
  });

/** A task that counts answers of odd length as right, which a random model gives now and then. */
const task: Task = {
  name: 'odd',
  train: () => ({ id: 'p', messages: [], answer: '' }),
  heldOut: (count) =>
    Array.from({ length: count }, (_, i) => ({
      id: `${i}`,
      messages: [{ role: 'user', content: `${i} plus 3 is what?` }],
      answer: '',
    })),
  reward: ({ response }) => ({ score: 7, acc: response.length % 2 }),
};

let engine: LocalEngine;
beforeAll(async () => {
  engine = await createLocalEngine(tinySpec(configOf({}), chatConfig));
});
afterAll(() => engine.destroy());

async function evaluate(
  valKwargs: object,
  greedy: boolean,
): Promise<{ metrics: Metrics; prefill: number; heard: number }> {
  await engine.rollout.resetCache();
  let [stats, heard]: [RolloutStats | undefined, number] = [undefined, 0];
  const rollout = Object.create(engine.rollout, {
    generate: { value: (...args: Parameters<LocalEngine['rollout']['generate']>) => engine.rollout.generate(...args) },
    release: { value: (...args: Parameters<LocalEngine['rollout']['release']>) => engine.rollout.release(...args) },
    takeStats: { value: async () => (stats = await engine.rollout.takeStats()) },
  }) as LocalEngine['rollout'];
  const generation = { config: configOf(valKwargs), engine: { ...engine, rollout }, task };
  const { metrics } = await validate(generation, { greedy, onSample: () => heard++ });
  return { metrics, prefill: stats!.prefillTokens, heard };
}

test('greedy answers cost no prefill of their own, and change no sampled one', async () => {
  const sampled = await evaluate({ n: 2 }, false);
  const alone = await evaluate({ n: 1, temperature: 0 }, false);
  const both = await evaluate({ n: 2 }, true);
  expect(both.metrics['val-core/odd/acc/mean@2']).toBe(sampled.metrics['val-core/odd/acc/mean@2']);
  expect(both.metrics['val-core/odd/acc/greedy']).toBe(alone.metrics['val-core/odd/acc/mean@1']);
  expect(sampled.metrics['val-core/odd/acc/greedy']).toBeUndefined();
  expect([sampled.heard, both.heard]).toEqual([2 * PROBLEMS, 2 * PROBLEMS]);
  // A sample that starts after the prompt was cached recomputes the prompt's last row, from which its first token is sampled.
  expect(both.prefill - sampled.prefill).toBeLessThanOrEqual(PROBLEMS);
});

test('an evaluation in parts gives the same result; an aborted one rejects and can be continued', async () => {
  const generation = { config: configOf({ n: 2 }), engine, task };
  const { 'timing_s/testing': _, ...whole } = (await validate(generation, { greedy: true })).metrics;
  const [counts, ending] = [[] as number[], new AbortController()];
  const onProgress = (done: number) => counts.push(done);
  const parts = await Evaluation.begin(generation, { greedy: true, onProgress });
  await parts.next(7);
  await engine.rollout.resetCache();
  await parts.next(1);
  expect(parts.isDone).toBe(false);
  await parts.next();
  expect(parts.isDone).toBe(true);
  expect(parts.result().metrics).toMatchObject(whole);
  expect([Math.max(...counts), counts.length]).toEqual([PROBLEMS, PROBLEMS + 3]);

  const ended = validate(generation, { signal: ending.signal });
  ending.abort(new Error('enough'));
  await expect(ended).rejects.toThrow('enough');
});
