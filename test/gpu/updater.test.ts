/**
 * Tests the update of a mini-batch: the gradient is the same for any split into micro-batches, any implementation of the loss, and any
 * sampling settings.
 */
import { beforeAll, expect, test } from 'vitest';
import { LOSS_AGG_MODES } from '../../src/grpo/losses/aggregate.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { policyLossSpec } from '../../src/grpo/update/lossSpec.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { POLICY_LOSSES, computePolicyLoss, type PolicyLoss } from '../../src/grpo/losses/index.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { registerAdvantage, registerPolicyLoss } from '../../src/extensions/modules/register.ts';
import { checkPolicyLoss } from '../../src/extensions/verify/checkPolicyLoss.ts';
import { stepTokens, type StepTokens } from '../../src/grpo/update/stepTokens.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { CustomLoss } from '../../src/grpo/losses/types.ts';
import { PolicyUpdater } from '../../src/grpo/update/updater.ts';
import type { ModelEngine, TensorMap, TrainLoss } from '../../src/model/engine.ts';
import { entropyGradient } from '../../src/model/policyStage.ts';
import type { Task } from '../../src/tasks/task.ts';
import { createLocalEngine, type LocalEngine } from '../../src/workers/localEngine.ts';
import { rng } from '../random.ts';
import { isFull } from './full.ts';
import { ENDED } from '../samples.ts';
import { chatConfig, tinySpec } from './tinySpec.ts';

const PROMPTS = 7;
const PER_PROMPT = 3;

const configOf = (algorithm: object, actor: object = {}, rollout: object = {}) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: PROMPTS, maxPromptLength: 48, maxResponseLength: 24, valMaxSamples: 1 },
    rollout: { n: PER_PROMPT, maxNumSeqs: 8, ...rollout },
    actor: { ppoMiniBatchSize: PROMPTS, ppoMaxTokenLenPerGpu: 1024, ...actor },
    algorithm,
    trainer: { totalTrainingSteps: 1 },
  });

const model = chatConfig;
let engine: LocalEngine;
beforeAll(async () => {
  engine = await createLocalEngine(tinySpec(configOf({}, { useKlLoss: true }), model));
});

/** Returns samples of random tokens and lengths. Every fourth token is a tool's. `drift` moves the old log-probs away from the policy's. */
async function offPolicySamples(
  config: TrainConfig,
  drift: number,
): Promise<{ samples: Sample[]; tokens: StepTokens }> {
  const random = rng(11);
  const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(random.uniform() * model.vocabSize));
  const samples = Array.from({ length: PROMPTS * PER_PROMPT }, (_, s): Sample => {
    const length = 1 + ((s * 5) % 13);
    const score = random.uniform();
    return {
      problem: { id: 'p', messages: [], answer: '' },
      group: Math.floor(s / PER_PROMPT),
      messages: [],
      reward: { score, acc: 0 },
      trajectory: {
        promptIds: new Uint32Array(5).fill(1 + Math.floor(s / PER_PROMPT)),
        responseIds: ids(length),
        mask: Uint8Array.from({ length }, (_, t) => (t % 4 === 2 ? 0 : 1)),
        logProbs: new Float32Array(length),
        logMass: new Float32Array(length),
        ...ENDED,
      },
    };
  });
  const now = await new PolicyUpdater(config, engine).oldLogProbs(samples);
  samples.forEach(({ trajectory }, s) => {
    trajectory.logProbs = trajectory.logProbs.map((_, t) =>
      trajectory.mask[t] ? now[s][t] - drift * random.normals(1)[0] : 0,
    );
  });
  const refLogProbs = now.map((values) => Float64Array.from(values, (x) => x - 0.3));
  const tokens = stepTokens(config, samples, { refLogProbs });
  // Excludes one complete sample and single tokens from the loss, as rollout correction does.
  tokens.masks = tokens.masks.map((mask, s) =>
    Float64Array.from(mask, (m, t) => (s === 4 || (s + t) % 9 === 0 ? 0 : m)),
  );
  return { samples, tokens };
}

/** The weights and the optimizer state before the first step. */
const START = { step: 0, updates: 0 };

/** Returns the gradient of one mini-batch before clipping, and its number of micro-batches. */
async function gradientOf(
  config: TrainConfig,
  data: { samples: Sample[]; tokens: StepTokens },
  custom?: CustomLoss | PolicyLoss,
) {
  let [microBatches, gradient]: [number, TensorMap] = [0, new Map()];
  const watched: ModelEngine = Object.create(engine.model, {
    forwardBackward: {
      value: (...args: Parameters<ModelEngine['forwardBackward']>) => {
        microBatches++;
        return engine.model.forwardBackward(...args);
      },
    },
    logProbs: { value: (...args: Parameters<ModelEngine['logProbs']>) => engine.model.logProbs(...args) },
    optimizerStep: {
      value: async (options: Parameters<ModelEngine['optimizerStep']>[0]) => {
        gradient = await engine.model.exportGradients();
        return engine.model.optimizerStep({ ...options, lr: 0 });
      },
    },
  }) as ModelEngine;
  await new PolicyUpdater(config, { ...engine, model: watched }, custom).update(data.samples, data.tokens, START);
  return { gradient, microBatches };
}

/** Returns |a - b| / |b| over all parameters. */
function distance(a: TensorMap, b: TensorMap): number {
  let [difference, norm] = [0, 0];
  for (const [name, { data }] of b) {
    const other = a.get(name)!.data;
    data.forEach((x, i) => ([difference, norm] = [difference + (other[i] - x) ** 2, norm + x * x]));
  }
  expect(norm).toBeGreaterThan(0);
  return Math.sqrt(difference / norm);
}

test.each(LOSS_AGG_MODES)('%s: 1, 2, 3 and 7 micro-batches, one gradient', async (lossAggMode) => {
  // Cutting a mini-batch does not depend on the loss, so one mode is enough for the loss of whole sequences every day.
  for (const algorithm of isFull || lossAggMode === 'seq-mean-token-mean' ? ['dapo', 'gspo'] : ['dapo']) {
    const config = configOf({ name: algorithm }, { lossAggMode, klLossCoef: 0.1, entropyCoeff: 0.01 });
    const data = await offPolicySamples(config, 0.2);
    const whole = await gradientOf(config, data);
    expect(whole.microBatches).toBe(1);
    for (const [count, sequences] of [
      [2, 11],
      [3, 7],
      [7, 3],
    ]) {
      config.actor.ppoMicroBatchSizePerGpu = sequences;
      const cut = await gradientOf(config, data);
      expect(cut.microBatches).toBe(count);
      // Rounding: sums of about 200 terms in another order, that is a few dozen roundings of 6e-8.
      expect(distance(cut.gradient, whole.gradient)).toBeLessThan(3e-6);
    }
  }
});

test.each(LOSS_AGG_MODES.filter((mode) => mode.startsWith('seq-mean')))(
  '%s: what drops out of a mini-batch takes its gradient along, and no other grows',
  async (lossAggMode) => {
    const config = configOf({ name: 'dapo' }, { lossAggMode, klLossCoef: 0.1 });
    const { samples, tokens } = await offPolicySamples(config, 0.2);
    const whole = await gradientOf(config, { samples, tokens });
    const sumOf = (a: TensorMap, b: TensorMap): TensorMap =>
      new Map(
        [...a].map(([name, { shape, data }]) => [name, { shape, data: data.map((x, i) => x + b.get(name)!.data[i]) }]),
      );
    const masked = (drops: (s: number) => boolean) => {
      const masks = tokens.masks.map((mask, s) => (drops(s) ? new Float64Array(mask.length) : mask));
      return gradientOf(config, { samples, tokens: { ...tokens, masks } });
    };
    const [even, odd] = [await masked((s) => s % 2 === 1), await masked((s) => s % 2 === 0)];
    expect(distance(sumOf(even.gradient, odd.gradient), whole.gradient)).toBeLessThan(3e-6);
    // Simulates dynamic sampling: one update has only the first 9 samples (3 groups), the next one has the others.
    const part = (from: number, to: number) => {
      const cut = <T>(all: T[]): T[] => all.slice(from, to);
      const { masks, oldLogProbs, advantages, refLogProbs } = tokens;
      const rest = { masks: cut(masks), oldLogProbs: cut(oldLogProbs), advantages: cut(advantages) };
      return gradientOf(config, {
        samples: cut(samples),
        tokens: { ...tokens, ...rest, refLogProbs: cut(refLogProbs!) },
      });
    };
    const [first, others] = [await part(0, 9), await part(9, samples.length)];
    expect(distance(sumOf(first.gradient, others.gradient), whole.gradient)).toBeLessThan(3e-6);
  },
);

test('topEntropyQuantile keeps the entropy bonus to the tokens that the policy loss keeps, and the KL to none', async () => {
  const config = configOf({ name: 'dapo' }, { topEntropyQuantile: 0.25, entropyCoeff: 0.1, klLossCoef: 0.1 });
  const data = await offPolicySamples(config, 0.2);
  const losses: TrainLoss[] = [];
  const watched: ModelEngine = Object.create(engine.model, {
    forwardBackward: {
      value: (...args: Parameters<ModelEngine['forwardBackward']>) => {
        losses.push(args[1]);
        return engine.model.forwardBackward(...args);
      },
    },
    logProbs: { value: (...args: Parameters<ModelEngine['logProbs']>) => engine.model.logProbs(...args) },
    optimizerStep: {
      value: (options: Parameters<ModelEngine['optimizerStep']>[0]) =>
        engine.model.optimizerStep({ ...options, lr: 0 }),
    },
  }) as ModelEngine;
  await new PolicyUpdater(config, { ...engine, model: watched }).update(data.samples, data.tokens, START);
  const [loss] = losses;
  if (loss.kind !== 'policy') throw new Error(loss.kind);
  const { weights, klWeights, entropyWeights } = loss.inputs;
  const kept = Array.from(klWeights, (_, e) => e).filter((e) => entropyWeights![e] !== 0);
  expect(kept).toEqual(Array.from(klWeights, (_, e) => e).filter((e) => weights[e] !== 0));
  expect(kept.length / klWeights.length).toBeCloseTo(0.25, 1);
  for (const e of kept) expect(entropyWeights![e]).toBe(klWeights[e]);
  expect(klWeights.every((w) => w > 0)).toBe(true);
  // Like TRL: the bonus is entropies * mask * entropy_mask, so its slope is 0 where a mask is 0.
  const slope = entropyGradient(loss.spec, loss.inputs);
  slope.forEach((d, e) => expect(d).toBeCloseTo(kept.includes(e) ? -0.1 * klWeights[e] : 0, 9));
});

test.each(['dapo', 'cispo', 'sapo'])('a custom loss that states %s has the gradient of the fused one', async (name) => {
  const config = configOf({ name }, { klLossCoef: 0.1, entropyCoeff: 0.02 });
  const data = await offPolicySamples(config, 0.2);
  const custom: CustomLoss = ({ logProbs, oldLogProbs: oldLogp, refLogProbs: refLogp, ...rest }) => ({
    // The KL term does not belong to the loss and is added separately.
    dLogProbs: Float32Array.from(
      computePolicyLoss(
        { ...policyLossSpec(config), klLossCoef: 0 },
        { ...rest, logp: logProbs, oldLogp, refLogp: refLogp! },
      ).grad,
    ),
  });
  const fused = await gradientOf(config, data);
  expect(distance((await gradientOf(config, data, custom)).gradient, fused.gradient)).toBeLessThan(1e-6);
});

test('a loss that returns nothing but zeros leaves KL and entropy terms, and reports its own numbers', async () => {
  const config = configOf({}, { klLossCoef: 5, entropyCoeff: 10, ppoMicroBatchSizePerGpu: 7 });
  const data = await offPolicySamples(config, 0.2);
  const silent: CustomLoss = ({ logProbs, weights }) => ({
    dLogProbs: new Float32Array(logProbs.length),
    loss: weights.reduce((a, b) => a + b, 0),
    metrics: { 'actor/mine': 3 },
  });
  const zero: PolicyLoss = { name: 'zero', row: () => ({ loss: 1, grad: 0, metrics: { 'actor/mine': 3 } }) };
  const wgsl = 'fn rowGrad(t: Token) -> f32 { return 0.0; }';
  const fused = await gradientOf(config, data, { ...zero, wgsl });
  for (const loss of [silent, zero]) {
    const { gradient } = await gradientOf(config, data, loss);
    expect(distance(gradient, fused.gradient)).toBeLessThan(1e-6);
  }
  const updater = new PolicyUpdater(
    { ...config, actor: { ...config.actor, optim: { ...config.actor.optim, lr: 1e-12 } } },
    engine,
    silent,
  );
  const { metrics } = await updater.update(data.samples, data.tokens, START);
  // Under seq-mean, the loss weights sum to the share of the mini-batch's possible samples that have a trained token.
  const counted = data.tokens.masks.filter((mask) => Array.from(mask).includes(1)).length;
  expect(metrics['actor/pg_loss']).toBeCloseTo(counted / (PROMPTS * PER_PROMPT), 5);
  expect(metrics).toMatchObject({ 'actor/kl_coef': 5 });
  expect(metrics['actor/mine']).toBeCloseTo(3, 9);
  expect(metrics).not.toHaveProperty('actor/pg_clipfrac');
  expect(metrics['actor/grad_norm']).toBeGreaterThan(0.1);
  await expect(gradientOf(config, data, () => ({ dLogProbs: new Float32Array(1) }))).rejects.toThrow(
    'The loss returned 1 values of dLogProbs for',
  );
});

test('a loss without WGSL has the gradient of the same loss with WGSL, including sequence terms and KL', async () => {
  for (const name of ['gspo', 'sapo'] as const) {
    const config = configOf({ name }, { klLossCoef: 0.1, entropyCoeff: 0.01 });
    const data = await offPolicySamples(config, 0.2);
    const { wgsl: _, ...row } = POLICY_LOSSES[name];
    const slow = await gradientOf(config, data, row);
    expect(distance(slow.gradient, (await gradientOf(config, data)).gradient)).toBeLessThan(1e-5);
  }
});

test('a registered loss and advantage train by their names, their numbers set in the config; checkPolicyLoss holds on this device', async () => {
  const beta = { numbers: { mineBeta: 0.1 }, row: quadratic, wgsl: QUADRATIC };
  registerPolicyLoss('mine', beta);
  let seen = 0;
  registerAdvantage('mine_advantage', ({ masks }, samples) => {
    seen = samples.length;
    return masks.map((mask, s) => Float64Array.from(mask, () => s % 2));
  });
  const config = configOf({ name: 'mine', advEstimator: 'mine_advantage' }, { policyLoss: { mineBeta: 0.5 } });
  expect(config.actor.policyLoss.lossMode).toBe('mine');
  expect(policyLossSpec(config).numbers).toMatchObject({ mineBeta: 0.5 });
  const data = await offPolicySamples(config, 0.2);
  expect(seen).toBe(data.samples.length);
  const vanilla = { ...config.actor, policyLoss: { ...config.actor.policyLoss, lossMode: 'vanilla' } };
  const direct = await gradientOf({ ...config, actor: vanilla }, data, beta);
  expect(distance((await gradientOf(config, data)).gradient, direct.gradient)).toBe(0);
  const { gpu } = engine;
  expect((await checkPolicyLoss(beta, { gpu })).wgslError).toBeLessThan(1e-5);
  const wrong = { ...beta, wgsl: QUADRATIC.replace('t.logRatio', '1.01 * t.logRatio') };
  await expect(checkPolicyLoss(wrong, { gpu })).rejects.toThrow('its WGSL and its row differ by');
});

const QUADRATIC = 'fn rowGrad(t: Token) -> f32 { return -t.advantage + params.mineBeta * t.logRatio; }';
const quadratic: PolicyLoss['row'] = ({ mineBeta }, { logp, oldLogp, advantage }) => ({
  loss: -advantage * logp + 0.5 * mineBeta * (logp - oldLogp) ** 2,
  grad: -advantage + mineBeta * (logp - oldLogp),
});

test("a copy of sapo as a user's loss: the same bits from as many dispatches and read-backs", async () => {
  const config = configOf({ name: 'sapo' }, { klLossCoef: 0.1 });
  const data = await offPolicySamples(config, 0.2);
  const work = async (loss?: PolicyLoss) => {
    const before = { ...engine.gpu.counters };
    const { gradient } = await gradientOf(config, data, loss);
    const { dispatches, mappedBytes } = engine.gpu.counters;
    return { gradient, made: [dispatches - before.dispatches, mappedBytes - before.mappedBytes] };
  };
  const [builtIn, own] = [await work(), await work({ ...POLICY_LOSSES.sapo, name: 'mine' })];
  expect(own.made).toEqual(builtIn.made);
  for (const [name, { data: values }] of builtIn.gradient) expect(own.gradient.get(name)!.data).toEqual(values);
});

test("a user's WGSL with errors or names already in use ends in one error with the compiler's message and line", async () => {
  const config = configOf({});
  const data = await offPolicySamples(config, 0.2);
  const of = (wgsl: string, numbers = {}) =>
    gradientOf(config, data, { name: 'mine', numbers, row: () => ({ loss: 0, grad: 0 }), wgsl });
  const row = 'fn rowGrad(t: Token) -> f32 { return -t.advantage; }';
  await expect(of('\nfn rowGrad(t: Token) -> f32 { return tau; }')).rejects.toThrow(
    /^Policy loss "mine" does not compile: .*tau.*\(line 2 of its WGSL: "fn rowGrad/,
  );
  await expect(of(`${row}\nfn klGrad() {}`)).rejects.toThrow(/^Policy loss "mine" does not compile: .*klGrad/);
  await expect(of(row, { E: 1 })).rejects.toThrow('Policy loss "mine" has a number "E"');
  await expect(of(row, { clipRatioLow: 1 })).rejects.toThrow('Policy loss "mine" has a number "clipRatioLow"');
  expect((await gradientOf(config, data)).microBatches).toBe(1); // the device still works
});

/** Runs updates with mini-batches of `groups` groups. Records when the model is called and when the call resolves. */
async function watchedUpdate(groups: number, maxTokenLen: number) {
  const config = configOf({}, { ppoMiniBatchSize: groups, shuffle: false });
  const data = await offPolicySamples(config, 0.2);
  config.actor.ppoMaxTokenLenPerGpu = maxTokenLen;
  const log: string[] = [];
  const noted = (name: 'forwardBackward' | 'optimizerStep') => ({
    value: async (...args: never[]) => {
      log.push(`${name} asked`);
      const method = engine.model[name].bind(engine.model) as (...args: never[]) => Promise<unknown>;
      const result = await method(...args);
      log.push(`${name} answered`);
      return result;
    },
  });
  const methods = { forwardBackward: noted('forwardBackward'), optimizerStep: noted('optimizerStep') };
  const watched = Object.create(engine.model, methods) as ModelEngine;
  const before = await engine.model.exportWeights();
  const done = new PolicyUpdater(config, { ...engine, model: watched }).update(data.samples, data.tokens, START);
  const error = await done.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  await engine.model.importWeights(before);
  return { log: [...log], error };
}

const UPDATE = ['forwardBackward asked', 'forwardBackward answered', 'optimizerStep asked', 'optimizerStep answered'];

test('updates run one after another, whatever is prepared meanwhile', async () => {
  const { log, error } = await watchedUpdate(1, 1024);
  expect(error).toBeUndefined();
  expect(log).toEqual(Array<string[]>(PROMPTS).fill(UPDATE).flat());
});

test('a mini-batch that does not fit is an error before the update that it was prepared in, and after what runs', async () => {
  const { log, error } = await watchedUpdate(1, 16); // the first group has up to 11 tokens after a prompt of 5, the next 13
  expect(String(error)).toContain('maxTokenLen');
  expect(log.length).toBeGreaterThan(0);
  expect(log).toEqual(
    Array<string[]>(log.length / 2)
      .fill(UPDATE.slice(0, 2))
      .flat(),
  ); // its micro-batches, and no step
});

const task: Task = {
  name: 'any',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: () => [],
  reward: ({ responseTokens, response }) => ({ score: responseTokens + response.length, acc: 0 }),
};

test('top-p 0.9: with the kept mass on both sides the first ratio is 1, without it is not', async () => {
  const config = configOf({}, {}, { topP: 0.9 });
  const sampled: Sample[] = [];
  const trainer = new GrpoTrainer({ config, task, engine, onSample: (sample) => sampled.push(sample) });
  const before = await engine.model.exportWeights();
  const { metrics } = await trainer.step();
  await engine.model.importWeights(before);
  const trained = await new PolicyUpdater(config, engine).oldLogProbs(sampled);
  /** Renormalizes log-probs to the tokens that top-k, top-p or min-p kept: subtracts the log of their probability mass. */
  const renormalize = (logProbs: ArrayLike<number>, logMass: Float32Array) =>
    Float32Array.from(logProbs, (logp, e) => logp - logMass[e]);
  const ratios = (offMass: boolean) =>
    sampled.flatMap(({ trajectory: { logProbs, logMass, mask } }, s) => {
      const behaviour = renormalize(logProbs, logMass);
      const now = offMass ? renormalize(trained[s], logMass) : trained[s];
      return Array.from(behaviour, (b, t) => Math.exp(now[t] - b)).filter((_, t) => mask[t] === 1);
    });
  const mean = (values: number[]) => values.reduce((a, b) => a + b, 0) / values.length;
  expect(Math.abs(mean(ratios(true)) - 1)).toBeLessThan(1e-5);
  expect(Math.abs(mean(ratios(false)) - 1)).toBeGreaterThan(0.01);
  expect(metrics['training/kept_mass_mean']).toBeCloseTo(mean(ratios(false)), 4);
  expect(metrics['training/rollout_probs_diff_max']).toBe(0);
  expect(metrics['actor/ppo_kl']).toBe(0);
});
