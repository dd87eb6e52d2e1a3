/**
 * Tests the Learner: the trainer's numbers from a user's own loop, the examples, accumulation, states, errors, and no allocations during
 * steps.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { prefer } from '../../examples/dpo-loop.ts';
import { askedLength, config, grpo, promptOf, rewardOf } from '../../examples/grpo-loop.ts';
import { moveTo } from '../../examples/resume-loop.ts';
import { imitate } from '../../examples/sft-loop.ts';
import { InputError, UserCodeError } from '../../src/errors.ts';
import { resolveSftConfig } from '../../src/extensions/sft/resolve.ts';
import { Learner, type TrainRow } from '../../src/extensions/learner/index.ts';
import { POLICY_LOSSES } from '../../src/grpo/losses/index.ts';
import { trainSupervised } from '../../src/extensions/sft/sft.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Checkpoint } from '../../src/grpo/types.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { parseTrainerState } from '../../src/runs/trainerState.ts';
import { sftExample } from '../../src/extensions/sft/conversationTokens.ts';
import type { Message, Task } from '../../src/tasks/task.ts';
import { createLocalEngine, type LocalEngine } from '../../src/workers/localEngine.ts';
import { isFull } from './full.ts';
import { learnerSpec } from './learnerEngine.ts';

let engine: LocalEngine;
let start: Checkpoint;
beforeAll(async () => {
  engine = await createLocalEngine(learnerSpec({ withReference: true }));
  start = await new Learner({ engine, config }).saveState();
});
afterAll(() => engine.destroy());

/** Returns a learner in its initial state, independent of what earlier tests did with the engine. */
async function fresh(): Promise<Learner> {
  const learner = new Learner({ engine, config });
  await learner.loadState(start);
  return learner;
}

const bits = (tensors: TensorMap) =>
  Object.fromEntries([...tensors].map(([name, { data }]) => [name, new Uint32Array(data.slice().buffer)]));

async function expectSameWeights(want: TensorMap): Promise<void> {
  expect(bits(await engine.model.exportWeights())).toEqual(bits(want));
}

const largest = (a: TensorMap, b: TensorMap) =>
  Math.max(...[...a].map(([name, { data }]) => Math.max(...data.map((x, i) => Math.abs(x - b.get(name)!.data[i])))));

/** The example's problems and reward as a task of the trainer. */
const task: Task = {
  name: 'lengths',
  train: (index) => ({ id: `${index}`, messages: promptOf(askedLength(index)), answer: `${askedLength(index)}` }),
  heldOut: () => [],
  reward: ({ problem, response }) => ({ score: rewardOf(Number(problem.answer), response), acc: 0 }),
};

const prompts = [promptOf(12), promptOf(30)];

/** Returns sampled rows with advantages other than 0. */
async function rowsOf(learner: Learner, n = 3): Promise<TrainRow[]> {
  const rows = (await learner.sample(prompts, n, { step: 7 })).flat();
  return rows.map((row, i) => ({ ...row, advantages: (i % 3) - 0.8 }));
}

// The long timeout is for the compilation of kernels, for which the first test waits.
test("the example's loop has the trainer's numbers, bit for bit, on two steps", async () => {
  await fresh();
  const history = await grpo(engine, 2);
  const weights = await engine.model.exportWeights();
  await fresh();
  const trainer = new GrpoTrainer({ config, task, engine });
  for (const { gradNorm, reward, ...metrics } of history) {
    const { metrics: want } = await trainer.step();
    expect(want).toMatchObject(metrics);
    expect(gradNorm).toBe(want['actor/grad_norm']);
    expect(reward).toBe(want['critic/score/mean']);
    expect(gradNorm).toBeGreaterThan(0);
    expect(metrics['training/rollout_probs_diff_max']).toBe(0);
    expect(Object.keys(metrics).sort()).toEqual(
      Object.keys(want)
        .filter((key) => /^(actor|training\/rollout)/.test(key))
        .filter((key) => !/grad_norm|actor\/lr|skipped/.test(key))
        .sort(),
    );
  }
  await expectSameWeights(weights);
});

test('imitation by cross_entropy is trainSupervised, bit for bit, and the loss falls', async () => {
  const conversations = ['12', '7', '305'].map((answer): Message[] => [
    { role: 'user', content: `What is ${answer}?` },
    { role: 'assistant', content: `It is ${answer}.` },
  ]);
  const learner = await fresh();
  const losses = [];
  for (let i = 0; i < 3; i++) losses.push(await imitate(learner, conversations));
  const weights = await engine.model.exportWeights();
  await fresh();
  const { optim } = config.actor;
  const sft = resolveSftConfig({
    name: 'sft',
    data: { trainBatchSize: 3, maxLength: 64 },
    optim: {
      lr: 1e-3,
      betas: optim.betas,
      weightDecay: optim.weightDecay,
      eps: optim.eps,
      gradClip: 1,
      lrWarmupSteps: 0,
    },
    trainer: { totalTrainingSteps: 3 },
  });
  const want: number[] = [];
  await trainSupervised({
    config: { ...sft, optim: { ...sft.optim, lrSchedulerType: 'constant' } },
    engine,
    example: (index) => sftExample(engine.tokenizer, conversations[index % 3]),
    onStep: (metrics) => void want.push(metrics['train/loss']),
  });
  losses.forEach((loss, i) => expect(loss).toBeCloseTo(want[i], 6));
  expect(losses[2]).toBeLessThan(losses[0]);
  await expectSameWeights(weights);
});

test('DPO as a function of all rows: log 2 at the start, then less, however the rows are cut', async () => {
  const learner = await fresh();
  const pairs = await rowsOf(learner, 2);
  const first = await prefer(learner, pairs);
  expect(first).toBeCloseTo(Math.log(2), 5);
  const second = await prefer(learner, pairs);
  expect(second).toBeLessThan(first);
  const after = await engine.model.exportWeights();
  // Each row becomes a separate micro-batch. The loss function must still receive complete pairs of a chosen and a rejected row.
  const { actor } = config;
  const cut = new Learner({ engine, config: { ...config, actor: { ...actor, ppoMicroBatchSizePerGpu: 1 } } });
  await cut.loadState(start);
  expect(await prefer(cut, pairs)).toBeCloseTo(first, 6);
  expect(await prefer(cut, pairs)).toBeCloseTo(second, 6);
  expect(largest(await engine.model.exportWeights(), after)).toBeLessThan(2e-4);
});

test('a state resumes bit for bit, in another engine too', async () => {
  const learner = await fresh();
  const step = async (one: Learner) => {
    const rows = (await one.sample(prompts, 2)).flat();
    const { metrics } = await one.forwardBackward(
      rows.map((row, i) => ({ ...row, advantages: i - 1 })),
      'cispo',
    );
    return { rows, metrics, ...(await one.optimStep()) };
  };
  await step(learner);
  const other = await createLocalEngine(learnerSpec({ weights: new Map(start.weights) }));
  const moved = await moveTo(other, learner);
  const want = [await step(learner), await step(learner)];
  expect([await step(moved), await step(moved)]).toEqual(want);
  expect(want[1].updates).toBe(3);
  expect(want[1].rows).not.toEqual(want[0].rows);
  const weights = await other.model.exportWeights();
  // The saved state has the format of a run folder, and a trainer can restore it.
  const state = await moved.saveState();
  expect(parseTrainerState(JSON.stringify(state.state), 'state', undefined)).toEqual(state.state);
  const trainer = new GrpoTrainer({ config, task, engine: other });
  await trainer.restore(state);
  expect(trainer.state).toMatchObject({ step: 3, updates: 3 });
  await trainer.step();
  other.destroy();
  await expectSameWeights(weights);
});

test('two calls with the totals of the update equal one call; without totals each is a separate mean', async () => {
  const learner = await fresh();
  const rows = await rowsOf(learner);
  const batchNumTokens = rows.reduce((n, { mask }) => n + Array.from(mask).filter((m) => m === 1).length, 0);
  const gradient = async (parts: TrainRow[][], options = {}) => {
    for (const part of parts) await learner.forwardBackward(part, 'grpo', options);
    const made = await engine.model.exportGradients();
    await learner.zeroGrad();
    return made;
  };
  const halves = [rows.slice(0, 3), rows.slice(3)];
  for (const lossAggMode of ['token-mean', 'seq-mean-token-mean'] as const) {
    const whole = await gradient([rows], { lossAggMode });
    const sums = { lossAggMode, batchNumTokens, globalBatchSize: rows.length };
    expect(largest(await gradient(halves, sums), whole)).toBeLessThan(1e-6);
    expect(largest(await gradient(halves, { lossAggMode }), whole)).toBeGreaterThan(1e-4);
  }
});

test('every named loss has a finite gradient, which equals that of its definition and of a function', async () => {
  const learner = await fresh();
  const rows = await rowsOf(learner);
  // Every day a loss by tokens, one by sequences and one on the host: policy_loss.test.ts runs the kernels of all.
  const losses = isFull ? Object.keys(POLICY_LOSSES) : ['vanilla', 'gspo', 'clip_cov'];
  for (const name of [...losses, 'dapo', 'importance_sampling', 'cross_entropy']) {
    const { loss, metrics } = await learner.forwardBackward(rows, name);
    expect(loss).toBe(metrics['actor/pg_loss']);
    expect(Number.isFinite(loss)).toBe(true);
    await learner.zeroGrad();
  }
  const [named, row, own] = [
    'importance_sampling',
    { name: 'mine', row: POLICY_LOSSES['vanilla'].row },
    () => ({ dLogProbs: new Float32Array(0) }),
  ] as const;
  const sum = await learner.forwardBackward(rows, named);
  // On policy the ratio is 1, so the loss is the sum of -advantage over the trained tokens.
  const want = rows.reduce(
    (total, { mask, advantages }) => total - Array.from(mask).filter(Boolean).length * (advantages as number),
    0,
  );
  expect(sum.loss).toBeCloseTo(want, 4);
  expect(Number.isFinite((await learner.forwardBackward(rows, row)).loss)).toBe(true);
  await expect(learner.forwardBackward(rows, own)).rejects.toThrow('The loss returned 0 values of dLogProbs for');
  await learner.zeroGrad();
});

test('log-probs equal the sampled ones; forwardBackward returns none for rows that cannot change the policy', async () => {
  const learner = await fresh();
  const rows = (await learner.sample([...prompts, 'Tom has', [5, 6, 7]], 2, { temperature: 0.7, maxTokens: 9 })).flat();
  expect(rows.map(({ group }) => group)).toEqual([0, 0, 1, 1, 2, 2, 3, 3]);
  const { logProbs, entropies } = await learner.logProbs(rows, { temperature: 0.7 });
  logProbs.forEach((values, i) => expect(values).toEqual(rows[i].logProbs));
  expect(entropies[0].slice(rows[0].promptLength).every((h) => h > 0)).toBe(true);
  expect(await learner.logProbs(rows, { temperature: 0.7, reference: true })).toEqual({ logProbs, entropies });
  const trained = rows.map((row, i) => ({ ...row, advantages: i < 2 ? 0 : 1 }));
  const result = await learner.forwardBackward(trained, 'grpo', { temperature: 0.7 });
  expect(Number.isNaN(result.logProbs[0][rows[0].promptLength])).toBe(true);
  expect(result.logProbs[3]).toEqual(rows[3].logProbs);
  const all = await learner.forwardBackward(trained, 'grpo', { temperature: 0.7, skipZeroAdvantages: false });
  expect(all.logProbs[0]).toEqual(rows[0].logProbs);
  await learner.zeroGrad();
});

test('samples are keyed by seed and step; greedy is deterministic; a repeated call samples differently unless it names them', async () => {
  const learner = await fresh();
  const [first, second] = [await learner.sample(prompts, 2), await learner.sample(prompts, 2)];
  expect(second).not.toEqual(first);
  expect(await learner.sample(prompts, 2, { step: 1 })).toEqual(first);
  const seeded = await learner.sample(prompts, 2, { seed: 5 });
  expect(await learner.sample(prompts, 2, { seed: 5 })).toEqual(seeded);
  const [[a, b]] = await learner.sample([prompts[0]], 2, { temperature: 0 });
  expect(a.tokens).toEqual(b.tokens);
  const letter = first[0][0].text[0];
  const stopped = (await learner.sample(prompts, 2, { step: 1, stop: [letter] }))[0][0];
  expect(stopped).toMatchObject({ stopReason: 'stop_string', text: '' });
});

test('calls take effect in the order in which they are made, awaited or not', async () => {
  const learner = await fresh();
  const rows = await rowsOf(learner);
  const [before, , , after, version] = await Promise.all([
    learner.sample(prompts, 2, { step: 3 }),
    learner.forwardBackward(rows, 'grpo'),
    learner.optimStep({ lr: 0.05 }),
    learner.sample(prompts, 2, { step: 3 }),
    learner.optimStep().catch((error: unknown) => String(error)),
  ]);
  expect(after).not.toEqual(before);
  expect(await learner.sample(prompts, 2, { step: 3 })).toEqual(after);
  expect(version).toMatch(/optimStep: there is no gradient/);
  const again = await fresh();
  expect(await again.sample(prompts, 2, { step: 3 })).toEqual(before);
});

test('a failed call adds no gradient and keeps the earlier ones', async () => {
  const learner = await fresh();
  const rows = await rowsOf(learner);
  await learner.forwardBackward(rows, 'grpo');
  const held = await engine.model.exportGradients();
  const fails: [() => Promise<unknown>, typeof InputError | typeof UserCodeError, RegExp][] = [
    [() => learner.forwardBackward([...rows, { ...rows[0], mask: [0, 1] }]), InputError, /row 6 has 2 mask values for/],
    [() => learner.forwardBackward(rows, 'grpoo'), InputError, /there is no loss "grpoo"; known: vanilla/],
    [
      () => learner.forwardBackward(rows, 'grpo', { clipRatioLow: -1 }),
      InputError,
      /forwardBackward: "actor.clipRatioLow" is -1; allowed: >= 0/,
    ],
    [() => learner.forwardBackward(rows, 'grpo', { lr: 1 } as object), InputError, /there is no option "lr"/],
    [() => learner.forwardBackward(rows, 'grpo', { klLossCoef: 0.1 }), InputError, /row 0 has no refLogProbs/],
    [
      () =>
        learner.forwardBackward(rows, () => {
          throw new Error('mine');
        }),
      UserCodeError,
      /The loss threw "mine"/,
    ],
    [
      () => learner.forwardBackward(rows, ({ logProbs }) => ({ dLogProbs: logProbs.map(() => NaN) })),
      UserCodeError,
      /The loss returned NaN as dLogProbs\[0\]/,
    ],
    [
      () =>
        learner.forwardBackward(rows, { name: 'broken', row: () => ({ loss: 0, grad: 0 }), wgsl: 'fn rowGrad() {' }),
      InputError,
      /Policy loss "broken" does not compile/,
    ],
    [() => learner.sample(['', 'a'], 1), InputError, /sample: prompt 0 has 0 tokens/],
    [() => learner.sample([[5, 512]], 1), InputError, /sample: prompt 0: tokens\[1\] is 512; the model knows 0 to 511/],
    [() => learner.sample(['a'.repeat(400)], 1), InputError, /sample: prompt 0 has \d+ tokens; allowed: 1 to 64/],
    [() => learner.sample(['a'], 0), InputError, /sample: n is 0/],
    [() => learner.sample(['a'], 1, { topP: 2 }), InputError, /sample: "rollout.topP" is 2/],
    [() => learner.sample(['a'], 1, { maxTokens: 25 }), InputError, /sample: maxTokens is 25; allowed: 1 to 24/],
    [() => learner.optimStep({ lr: -1 }), InputError, /optimStep: "actor.optim.lr" is -1/],
    [() => learner.saveState(), InputError, /saveState: a gradient is accumulated/],
  ];
  for (const [call, kind, message] of fails) {
    const error: unknown = await call().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(kind);
    expect(String(error)).toMatch(message);
  }
  expect(bits(await engine.model.exportGradients())).toEqual(bits(held));
  expect((await learner.optimStep()).gradNorm).toBeGreaterThan(0);
  const state = await learner.saveState();
  const [name, { shape, data }] = [...state.weights][1];
  const wrong = { ...state, weights: new Map(state.weights).set(name, { shape: [...shape, 2], data }) };
  await expect(learner.loadState(wrong)).rejects.toThrow(InputError);
  await expect(learner.loadState({ ...start, optimizer: new Map() })).rejects.toThrow(InputError);
  await expectSameWeights(state.weights);
  expect(learner.updates).toBe(1);
});

/** Number of measured rounds; each round makes five calls. Earlier rounds may allocate. */
const ROUNDS = isFull ? 40 : 4;
test(`${5 * ROUNDS} calls after the first of each kind make nothing on the device`, async () => {
  const learner = await fresh();
  const made = () => {
    const { buffers, bytes, pipelines, bindGroups } = engine.gpu.counters;
    return { buffers, bytes, pipelines, bindGroups };
  };
  const round = async () => {
    const rows = (await learner.sample(prompts, 2, { maxTokens: 6, step: 1 })).flat();
    const trained = rows.map((row, i) => ({ ...row, advantages: i - 1 }));
    await learner.logProbs(rows);
    await learner.forwardBackward(trained, 'grpo');
    await learner.forwardBackward(trained, 'cross_entropy');
    await learner.optimStep({ lr: 1e-5 });
  };
  for (let i = 0; i < 3; i++) await round();
  const before = made();
  for (let i = 0; i < ROUNDS; i++) await round();
  expect(made()).toEqual(before);
});
