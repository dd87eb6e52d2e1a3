import { expect, test } from 'vitest';
import { Gpu } from '../../src/gpu/device.ts';
import { Head, headBytes } from '../../src/model/head.ts';
import { loadModel } from '../../src/model/weights/load.ts';
import { type LoraConfig, loraModules } from '../../src/model/lora/weights.ts';
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
  totalBytes,
} from '../../src/workers/memoryPlan.ts';
import { adjustedDrawBytes } from '../../src/rollout/decode/adjustedDraws.ts';
import { tinyConfig } from './tinyModel.ts';

const config = {
  ...tinyConfig,
  vocabSize: 300,
  hiddenSize: 64,
  headDim: 16,
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
  rollout: { maxSlots: 64, slotCapacity: 64, maxPrompts: 64, maxPromptLength: 64, maxBatchedTokens: 512 },
};

const lora: LoraConfig = {
  rank: 8,
  alpha: 16,
  dropout: 0.1,
  useRslora: false,
  targetModules: loraModules('all-linear'),
  seed: 1,
};
const ADAPTED = { ...spec, lora, enableGradientCheckpointing: true };

test.each([
  { name: 'every weight', spec },
  { name: 'adapters, checkpointed', spec: ADAPTED },
  { name: 'with a judge', spec: { ...spec, judge: { ...spec.rollout!, maxSlots: 16, maxPrompts: 16 } } },
])('$name: the plan is within 10% of what training and rollout then allocate', async ({ spec }) => {
  const engine = await createDeviceEngine(spec);
  const group = {
    prompt: Uint32Array.of(1, 2),
    samples: [{ tokens: Uint32Array.of(3, 4), mask: Uint8Array.of(1, 1) }],
  };
  const [{ batch }] = packGroups([group], 64);
  const nll = { kind: 'nll' as const, weights: Float32Array.of(1, 1) };
  await engine.model.forwardBackward(batch, nll, { temperature: 1 });
  await engine.model.optimizerStep({ lr: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClip: 1 });
  await engine.reference!.logProbs(batch, { temperature: 1 });
  const planned = planMemory(spec).reduce((sum, { bytes }) => sum + bytes, 0);
  expect(planned / engine.gpu.counters.bytes).toBeGreaterThan(0.9);
  expect(planned / engine.gpu.counters.bytes).toBeLessThan(1.1);
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
  const samples = [{ tokens: Uint32Array.of(3, 4), mask: Uint8Array.of(1, 1) }];
  const [{ batch }] = packGroups([{ prompt: Uint32Array.of(1, 2), samples }], 64);
  await engine.forwardBackward(batch, { kind: 'nll', weights: Float32Array.of(1, 1) }, { temperature: 1 });
  const planned = totalBytes(planMemory({ ...sizes, maxArenaBytes: gpu.maxArenaBytes }));
  expect(Math.abs(planned / gpu.counters.bytes - 1)).toBeLessThan(0.1);
  const before = gpu.counters.bytes;
  new Head(gpu, model, 2048, true);
  const options = { forTraining: true, maxArenaBytes: gpu.maxArenaBytes };
  expect(headBytes(cut, 2048, options) / (gpu.counters.bytes - before)).toBeCloseTo(1, 2);
  gpu.destroy();
});

test('adapters: no gradient or moment of the base, no copy for the reference', () => {
  const bytes = (items: PlanItem[], name: string) => items.find((item) => item.name === name)?.bytes;
  const [full, adapted] = [planMemory(spec), planMemory(ADAPTED)];
  expect(bytes(full, 'gradients')! / bytes(adapted, 'gradients')!).toBeGreaterThan(5);
  expect(bytes(adapted, 'AdamW moments')).toBe(2 * bytes(adapted, 'adapters')!);
  expect(bytes(full, 'reference model')).toBeGreaterThan(0);
  expect(bytes(adapted, 'reference model')).toBeUndefined();
  expect(bytes(adapted, 'training activations')!).toBeLessThan(0.9 * bytes(full, 'training activations')!);
});

test('a run over the cap is refused before anything is allocated, with the numbers and the setting to lower', async () => {
  const refused = createDeviceEngine({ ...spec, maxMemoryMib: 4 });
  await expect(refused).rejects.toThrow(
    /^This run needs \d+\.\d MiB of GPU memory but model.maxMemoryMib allows 4.0 MiB \(weights .*KV cache .*\)\. Each alone would save: .*actor.useKlLoss=false \d+\.\d MiB, .*rollout.maxSlots=32 \d+\.\d MiB.*data.maxResponseLength=32 \d+\.\d MiB\.$/,
  );
});

test('what a change is said to save is what the plan then lacks', () => {
  const total = (sizes: DeviceSpec) => totalBytes(planMemory(sizes));
  const saving = (sizes: DeviceSpec, change: string) => planSavings(sizes).find((s) => s.change === change)?.bytes;
  expect(saving(spec, 'model.enableGradientCheckpointing=true')).toBe(
    total(spec) - total({ ...spec, enableGradientCheckpointing: true }),
  );
  expect(saving(spec, 'actor.maxTokenLen=1024')).toBe(total(spec) - total({ ...spec, maxTokenLen: 1024 }));
  expect(saving(spec, 'model.loraRank=16')).toBeGreaterThan(0);
  expect(saving(ADAPTED, 'model.loraRank=16')).toBeUndefined();
  const bytes = planSavings(spec).map((s) => s.bytes);
  expect(bytes).toEqual([...bytes].sort((a, b) => b - a));
});

test('penalties have a line where they are asked for, and it is what they take', () => {
  const line = (sizes: DeviceSpec) => planMemory(sizes).find(({ name }) => name === 'penalties')?.bytes;
  expect(line(spec)).toBeUndefined();
  const { maxSlots, slotCapacity } = spec.rollout!;
  expect(line({ ...spec, adjustedDraws: true })).toBe(adjustedDrawBytes(maxSlots, config.vocabSize, slotCapacity));
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
  ).toEqual([...['memory plan: 13.0 MiB on the GPU', '  KV cache  12.0 MiB', '  weights    1.0 MiB']]);
});

test('a buffer beyond what the device binds is refused by its setting and the most it takes', () => {
  expect(() => checkBindings(spec, 1 << 20)).toThrow(
    'The MLP activations of a micro-batch need 3145728 bytes in one buffer but this device binds at most 1048576; lower actor.maxTokenLen from 2048 to at most 682.',
  );
  expect(() => checkBindings(spec, 1 << 27)).not.toThrow();
});
