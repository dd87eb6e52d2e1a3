import { expect, test } from 'vitest';
import { Gpu } from '../../src/gpu/device.ts';
import type { TrainLoss } from '../../src/model/engine.ts';
import { loadModel } from '../../src/model/weights/load.ts';
import type { OptimizerSpec } from '../../src/model/optimizer/spec.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { createDeviceEngine, type DeviceSpec } from '../../src/workers/localEngine.ts';
import {
  checkBindings,
  type PlanItem,
  planLines,
  planMemory,
  planSavings,
  type Sizes,
  totalBytes,
} from '../../src/workers/memoryPlan.ts';
import type { RolloutEngine } from '../../src/rollout/types.ts';
import { recipeSpec } from '../recipeSpec.ts';
import { isFull } from './full.ts';
import { expectPlanned } from './planned.ts';
import { loraOf, tinyConfig } from './tinyModel.ts';

const config = {
  ...tinyConfig,
  vocabSize: 300,
  hiddenSize: 64,
  intermediateSize: 192,
  numHiddenLayers: 3,
};
const spec: DeviceSpec = {
  engine: 'wgsl',
  config,
  weights: initWeights(config, 1),
  maxTokenLen: 2048,
  maxPositions: 128,
  withReference: true,
  withoutReference: 'actor.useKlLoss=false',
  rollout: { maxNumSeqs: 64, slotCapacity: 64, maxPrompts: 64, maxPromptLength: 64, maxBatchedTokens: 512 },
};

const lora = loraOf(8, { dropout: 0.1 });
const ADAPTED = { ...spec, lora, enableGradientCheckpointing: true };

const group = { prompt: Uint32Array.of(1, 2), samples: [{ tokens: Uint32Array.of(3, 4), mask: Uint8Array.of(1, 1) }] };
const [{ batch }] = packGroups([group], 64);
const ones = Float32Array.of(1, 1);
const nll: TrainLoss = { kind: 'nll', weights: ones };
const policy: TrainLoss = {
  kind: 'policy',
  spec: recipeSpec('grpo'),
  inputs: { oldLogProbs: ones, advantages: ones, weights: ones, klWeights: ones },
};
const ADAMW = { lr: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClip: 1 };

/** Generates two tokens. With `adjustedDraws`, uses a repetition penalty, which needs additional buffers. */
const generate = (engine: RolloutEngine, { adjustedDraws }: Pick<DeviceSpec, 'adjustedDraws'> = {}) =>
  engine.generate({
    requestId: 'a',
    contextIds: group.prompt,
    promptLength: 2,
    key: [1, 1],
    sampling: {
      temperature: 1,
      topK: 0,
      topP: 1,
      minP: 0,
      maxNewTokens: 2,
      stopTokenIds: [],
      ...(adjustedDraws && { repetitionPenalty: 1.1 }),
    },
  });

const { rollout: _, ...supervised } = { ...spec, withReference: false };
/** The everyday tests allocate for the last one, the only one with buffers of its own, and steady.test.ts takes steps by every one. */
const optimizers: OptimizerSpec[] = [
  { name: 'SignSGD' },
  { name: 'SGD', momentum: 0.9, nesterov: false },
  { name: 'Muon', momentum: 0.95, nesterov: true, adjustLrFn: 'original' },
];
const untied = { ...config, tieWordEmbeddings: false, qkvBias: true };

test.each([
  { name: 'every weight', spec, loss: policy },
  { name: 'adapters, checkpointed', spec: ADAPTED, loss: policy },
  {
    name: 'with a judge',
    spec: { ...spec, judge: { ...spec.rollout!, maxNumSeqs: 16, maxPrompts: 16 } },
    loss: policy,
  },
  {
    name: 'supervised, an untied head',
    spec: { ...supervised, config: untied, weights: initWeights(untied, 1) },
    loss: nll,
  },
  ...(isFull ? optimizers : optimizers.slice(2)).map((optimizer) => ({
    name: optimizer.name,
    spec: { ...spec, optimizer },
    loss: policy,
  })),
  { name: 'Muon, adapters', spec: { ...ADAPTED, optimizer: optimizers[2] }, loss: policy },
  { name: 'penalties', spec: { ...spec, adjustedDraws: true, withReference: false }, loss: policy },
  { name: 'log-probs alone', spec: { ...supervised, use: 'score' as const }, loss: undefined },
])('$name: the plan is what is then allocated', async ({ spec, loss }) => {
  const engine = await createDeviceEngine(spec);
  await engine.model.logProbs(batch, { temperature: 1 });
  if (loss) {
    await engine.model.forwardBackward(batch, loss, { temperature: 1 });
    await engine.model.optimizerStep(ADAMW);
    await engine.model.exportWeights();
  }
  await engine.reference?.logProbs(batch, { temperature: 1 });
  if ('rollout' in spec) await generate(engine.rollout, spec);
  if (engine.judge) await generate(engine.judge);
  expectPlanned(spec, engine.gpu.counters);
  engine.destroy();
});

test('generation alone allocates what is planned', async () => {
  const sizes = { ...spec, withReference: false, use: 'generate' as const };
  const engine = await createDeviceEngine(sizes);
  await generate(engine.rollout);
  expectPlanned(sizes, engine.gpu.counters);
  engine.destroy();
});

test('a table cut over several buffers: the scratch of its chunks is planned too', async () => {
  const cut = { ...config, vocabSize: 2000 };
  const gpu = await Gpu.create({ maxArenaBytes: 128 << 10 });
  const model = await loadModel(gpu, cut, 128, initWeights(cut, 1));
  expect(model.weights.views.head.length).toBeGreaterThan(3);
  const sizes = { ...spec, config: cut, weights: new Map(), withReference: false };
  const engine = new WgslEngine(gpu, model, sizes.maxTokenLen);
  new WgslRolloutEngine(gpu, model, sizes.rollout!);
  await engine.forwardBackward(batch, policy, { temperature: 1 });
  expectPlanned({ ...sizes, maxArenaBytes: gpu.maxArenaBytes }, gpu.counters);
  gpu.destroy();
});

test('packed weights: their largest matrix as float32 is planned if it decides the peak, or stays allocated', () => {
  const tall = { ...config, vocabSize: 20_000, numHiddenLayers: 1 };
  const sizes: Sizes = { config: tall, maxTokenLen: 4096, maxPositions: 16, use: 'generate', weightFormat: 'int4' };
  const line = (change: Partial<Sizes>, name: string) =>
    planMemory({ ...sizes, ...change }).find((item) => item.name === name)!.bytes;
  const table = 20_000 * 64 * 4;
  expect(line({}, 'staging')).toBe(table); // nothing is allocated after the load
  expect(line({ use: 'score' }, 'staging')).toBe(2 * 4096 * 4); // the table is freed before more buffers are allocated
  const odd = { ...tall, intermediateSize: 190 }; // a size with which products do not read packed weights
  expect(line({ config: odd }, 'weights') - line({}, 'weights')).toBeGreaterThan(table / 2);
});

test('adapters: no gradient or moment of the base, no copy for the reference', () => {
  const bytes = (items: PlanItem[], name: string) => items.find((item) => item.name === name)?.bytes ?? 0;
  const [full, adapted] = [planMemory(spec), planMemory(ADAPTED)];
  expect(bytes(full, 'gradients') / bytes(adapted, 'gradients')).toBeGreaterThan(5);
  expect(bytes(adapted, 'AdamW moments')).toBe(2 * bytes(adapted, 'adapters'));
  expect(bytes(full, 'reference model')).toBeGreaterThan(0);
  expect(bytes(adapted, 'reference model')).toBe(0);
  expect(bytes(adapted, 'training activations')).toBeLessThan(0.9 * bytes(full, 'training activations'));
});

test('SGD and SignSGD keep nothing, Muon one moment of the matrices, and the plan says what SignSGD would save', () => {
  const bytes = (optimizer?: OptimizerSpec) =>
    totalBytes(planMemory({ ...spec, ...(optimizer && { optimizer }) }).filter(({ name }) => name !== 'Newton-Schulz'));
  const line = (name: string) => planMemory(spec).find((item) => item.name === name)!.bytes;
  const moments = 2 * line('gradients'); // except the partial sums of the norm
  expect(Math.abs(bytes() - bytes({ name: 'SignSGD' }) - moments)).toBeLessThan(4096);
  const [, heavy, muon] = optimizers;
  expect(Math.abs(bytes() - bytes(heavy) - moments / 2)).toBeLessThan(4096);
  expect(bytes(muon)).toBeGreaterThan(bytes(heavy));
  expect(bytes(muon)).toBeLessThan(bytes());
  const saving = planSavings(spec).find(({ change }) => change === 'actor.optim.optimizer=SignSGD');
  expect(saving?.bytes).toBe(bytes() - bytes({ name: 'SignSGD' }));
});

test('a run over the cap is refused before anything is allocated, with the numbers and the setting to lower', async () => {
  const refused = createDeviceEngine({ ...spec, maxMemoryMib: 4 });
  await expect(refused).rejects.toThrow(
    /^This run needs \d+\.\d MiB of GPU memory but model.maxMemoryMib allows 4.0 MiB \(weights .*KV cache .*\)\. Each alone would save: .*actor.useKlLoss=false \d+\.\d MiB, .*rollout.maxNumSeqs=32 \d+\.\d MiB.*data.maxResponseLength=32 \d+\.\d MiB.*\.$/,
  );
});

test('a suggested change saves what the message says', () => {
  const total = (sizes: DeviceSpec) => totalBytes(planMemory(sizes));
  const saving = (sizes: DeviceSpec, change: string) => planSavings(sizes).find((s) => s.change === change)?.bytes;
  expect(saving(spec, 'model.enableGradientCheckpointing=true')).toBe(
    total(spec) - total({ ...spec, enableGradientCheckpointing: true }),
  );
  expect(saving(spec, 'actor.ppoMaxTokenLenPerGpu=1024')).toBe(total(spec) - total({ ...spec, maxTokenLen: 1024 }));
  expect(saving(spec, 'model.loraRank=16')).toBeGreaterThan(0);
  expect(saving(ADAPTED, 'model.loraRank=16')).toBeUndefined();
  const bytes = planSavings(spec).map((s) => s.bytes);
  expect(bytes).toEqual([...bytes].sort((a, b) => b - a));
});

test('the plan has a line for penalties if they are configured', () => {
  const line = (sizes: DeviceSpec) => planMemory(sizes).find(({ name }) => name === 'penalties')?.bytes;
  expect(line(spec)).toBeUndefined();
  // Bytes of a row of adjusted logits and a row of counts for each slot.
  const rows = 2 * spec.rollout!.maxNumSeqs * config.vocabSize * 4;
  expect(line({ ...spec, adjustedDraws: true })).toBeGreaterThan(rows);
});

test('generation and scoring plan neither gradients nor moments; the plan prints largest first', () => {
  const names = (use: 'score' | 'generate') =>
    planMemory({ ...spec, withReference: false, use }).map(({ name }) => name);
  expect(names('generate')).toEqual(['weights', 'KV cache', 'rollout activations', 'staging']);
  expect(names('score')).toEqual(['weights', 'activations', 'KV cache', 'rollout activations', 'staging']);
  expect(
    planLines([
      { name: 'weights', bytes: 1 << 20 },
      { name: 'KV cache', bytes: 12 << 20 },
    ]),
  ).toEqual(['memory plan: 13.0 MiB on the GPU', '  KV cache  12.0 MiB', '  weights    1.0 MiB']);
});

test('a buffer beyond what the device binds is refused by its setting and the most it takes', () => {
  expect(() => checkBindings(spec, 1 << 20)).toThrow(
    'The MLP activations of a micro-batch need 3145728 bytes in one buffer but this device binds at most 1048576. Lower actor.ppoMaxTokenLenPerGpu from 2048 to at most 682.',
  );
  expect(() => checkBindings(spec, 1 << 27)).not.toThrow();
});
