/**
 * Tests a model with 16-bit weights: rollout and training read the same weights, gradients and updates stay 32-bit, and it needs less
 * memory.
 */
import { expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import type { MatrixForm } from '../../src/model/weights/gpuWeights.ts';
import { loadModel } from '../../src/model/weights/load.ts';
import type { LoraConfig } from '../../src/model/lora/weights.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { dtypeNote } from '../../src/workers/engineSpec.ts';
import { createDeviceEngine, type DeviceSpec, withOfferedDtype } from '../../src/workers/localEngine.ts';
import { planMemory, totalBytes } from '../../src/workers/memoryPlan.ts';
import { rng } from '../random.ts';
import { recipeSpec } from '../recipeSpec.ts';
import { testGpu } from './gpu.ts';
import { rounded } from './halfBuffers.ts';
import { expectPlanned } from './planned.ts';
import { loraOf, tinyConfig } from './tinyModel.ts';

/** Sizes so small that no product has more than 16 rows, so that lavapipe compiles only its small tiles. */
const config: ModelConfig = { ...tinyConfig, hiddenSize: 16, headDim: 4, vocabSize: 15, intermediateSize: 13 };
const adam = { lr: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClip: 1 };
const lora = loraOf(4);
const weights = initWeights(config, 3);
const options = { temperature: 1 };
const [PROMPT, SAMPLES, LENGTH] = [3, 3, 5];

const offered = async () => (await testGpu()).device.features.has('shader-f16');
const onHalves = (name: string, body: (gpu: Gpu) => Promise<void>) =>
  test(name, async ({ skip }) => {
    if (!(await offered())) skip('this adapter has no shader-f16');
    await body(await testGpu());
  });

interface Form {
  lora?: LoraConfig;
  form: MatrixForm;
  half: boolean;
  checkpoint?: boolean;
}

async function build(gpu: Gpu, { lora: adapters, form, half, checkpoint = false }: Form) {
  const model = await loadModel(gpu, config, 32, weights, { lora: adapters, form, half });
  const engine = new WgslEngine(gpu, model, 16, { enableGradientCheckpointing: checkpoint });
  const sizes = { maxNumSeqs: 4, slotCapacity: 8, maxPrompts: 2, maxPromptLength: 8, maxBatchedTokens: 16 };
  return { engine, model, rollout: new WgslRolloutEngine(gpu, model, sizes) };
}
type Built = Awaited<ReturnType<typeof build>>;

const ids = (seed: number, n: number) => {
  const r = rng(seed);
  return Uint32Array.from({ length: n }, () => Math.floor(r.uniform() * config.vocabSize));
};

/** Generates samples of a prompt and packs them for training, with their recorded log-probs. */
async function draw({ rollout }: Built, step: number) {
  const prompt = ids(step, PROMPT);
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: LENGTH, stopTokenIds: [] };
  await rollout.resetCache();
  const drawn = await Promise.all(
    Array.from({ length: SAMPLES }, (_, s) => {
      const [requestId, key] = [`${step}.${s}`, [step, s] as const];
      return rollout.generate({ requestId, contextIds: prompt, promptLength: PROMPT, key, sampling });
    }),
  );
  drawn.forEach((_, s) => rollout.release(`${step}.${s}`));
  const mask = new Uint8Array(LENGTH).fill(1);
  const samples = drawn.map(({ tokenIds }) => ({ tokens: Uint32Array.from(tokenIds), mask }));
  const [{ batch }] = packGroups([{ prompt, samples }], 128);
  return { batch, logProbs: Float32Array.from(drawn.flatMap(({ logProbs }) => [...logProbs])) };
}

/** Returns the policy-gradient loss of one step, with advantages by sample. */
const lossOf = (oldLogProbs: Float32Array) => {
  const advantages = oldLogProbs.map((_, e) => [1, -1, 0.5][Math.floor(e / LENGTH)]);
  const each = oldLogProbs.map(() => 1 / oldLogProbs.length);
  return {
    kind: 'policy' as const,
    spec: recipeSpec('grpo'),
    inputs: { oldLogProbs, advantages, weights: each, klWeights: each },
  };
};

/** Returns the norm of the difference of two sets of tensors, divided by the norm of the second. */
function relativeDifference(a: TensorMap, b: TensorMap): number {
  let [difference, size] = [0, 0];
  for (const [name, { data }] of b)
    data.forEach((v, i) => {
      difference += (a.get(name)!.data[i] - v) ** 2;
      size += v ** 2;
    });
  return Math.sqrt(difference / size);
}

const SHAPES: [string, Form][] = [
  ['every weight', { form: 'trainedHalf', half: true }],
  ['every weight, layers run again', { form: 'trainedHalf', half: true, checkpoint: true }],
  ['adapters', { lora, form: 'half', half: true }],
  ['adapters over int8', { lora, form: 'int8', half: true }],
];
const asFloats = ({ form, ...rest }: Form): Form => ({
  ...rest,
  form: form === 'int8' ? form : 'trained',
  half: false,
});

for (const [name, form] of SHAPES)
  onHalves(`three GRPO steps, ${name}: rollout and training agree to the bit, gradients are float32's`, async (gpu) => {
    const [half, plain] = [await build(gpu, form), await build(gpu, asFloats(form))];
    for (let step = 1; step <= 3; step++) {
      const { batch, logProbs } = await draw(half, step);
      expect((await half.engine.logProbs(batch, options)).logProbs).toEqual(logProbs);
      await plain.engine.importWeights(await half.engine.exportWeights());
      for (const { engine } of [half, plain]) {
        const old = (await engine.logProbs(batch, options)).logProbs;
        await engine.forwardBackward(batch, lossOf(old), options);
      }
      const gradients = await half.engine.exportGradients();
      expect(relativeDifference(gradients, await plain.engine.exportGradients())).toBeLessThan(5e-3);
      for (const { engine } of [half, plain]) expect((await engine.optimizerStep(adam)).skipped).toBe(false);
    }
    for (const { data } of (await half.engine.exportWeights()).values()) expect(data.every(Number.isFinite)).toBe(true);
  });

onHalves('an update below what halves can hold is kept in the float32 weights', async (gpu) => {
  const built = await build(gpu, { form: 'trainedHalf', half: true });
  const name = 'model.layers.0.mlp.down_proj.weight';
  const before = (await built.engine.exportWeights()).get(name)!.data;
  const { batch } = await draw(built, 1);
  const ones = new Float32Array(batch.targets.length).fill(1);
  for (let step = 0; step < 4; step++) {
    await built.engine.forwardBackward(batch, { kind: 'nll', weights: ones }, options);
    await built.engine.optimizerStep({ ...adam, lr: 1e-6 });
  }
  const after = (await built.engine.exportWeights()).get(name)!.data;
  const [stayed, moved] = [rounded(before), rounded(after)];
  const kept = after.filter((v, i) => v !== before[i] && moved[i] === stayed[i]).length;
  expect(kept).toBeGreaterThan(0.8 * after.length);
});

onHalves('frozen halves are those that trained weights are rounded to, and come back as such', async (gpu) => {
  const trained = await build(gpu, { form: 'trainedHalf', half: true });
  const frozen = await build(gpu, { form: 'half', half: true });
  const { batch } = await draw(trained, 2);
  expect(await frozen.engine.logProbs(batch, options)).toEqual(await trained.engine.logProbs(batch, options));
  for (const [name, { data, shape }] of await frozen.model.weights.exportTensors()) {
    const start = weights.get(name)!.data;
    expect(data).toEqual(shape.length === 2 ? rounded(start) : start);
  }
});

onHalves('weights that arrive in pieces are the same halves', async (gpu) => {
  const source = {
    async *pieces() {
      for (const [name, { shape, data }] of weights)
        for (let first = 0; first < data.length; first += 3 * (shape[1] ?? 1))
          yield { name, shape, first, data: data.slice(first, first + 3 * (shape[1] ?? 1)) };
    },
  };
  const [whole, pieces] = await Promise.all(
    [weights, source].map((from) => loadModel(gpu, config, 32, from, { form: 'half', half: true })),
  );
  expect(await pieces.weights.exportTensors()).toEqual(await whole.weights.exportTensors());
});

const big = { ...config, vocabSize: 2000, hiddenSize: 128, headDim: 32, intermediateSize: 384, numHiddenLayers: 4 };
const spec: DeviceSpec = {
  engine: 'wgsl',
  config: big,
  weights: initWeights(big, 1),
  maxTokenLen: 128,
  maxPositions: 48,
  rollout: { maxNumSeqs: 4, slotCapacity: 24, maxPrompts: 2, maxPromptLength: 24, maxBatchedTokens: 64 },
};

for (const [name, change] of [
  ['every weight', {}],
  ['a reference', { withReference: true }],
  ['adapters', { lora, enableGradientCheckpointing: true }],
  ['log-probs alone', { use: 'score' }],
] as [string, Partial<DeviceSpec>][])
  onHalves(`${name}: the plan is what is allocated, and less than float32's`, async () => {
    const sizes: DeviceSpec = { ...spec, ...change, dtype: 'float16' };
    const engine = await createDeviceEngine(sizes);
    const samples = [{ tokens: Uint32Array.of(3, 4), mask: Uint8Array.of(1, 1) }];
    const [{ batch }] = packGroups([{ prompt: Uint32Array.of(1, 2), samples }], 64);
    await engine.reference?.logProbs(batch, options);
    await engine.model.logProbs(batch, options);
    if (sizes.use !== 'score') {
      await engine.model.forwardBackward(batch, lossOf(Float32Array.of(-1, -1)), options);
      await engine.model.optimizerStep(adam);
      await engine.model.exportWeights();
    }
    const planned = totalBytes(planMemory(sizes));
    expectPlanned(sizes, engine.gpu.counters);
    const { dtype: _, ...plain } = sizes;
    expect(planned).toBeLessThan(totalBytes(planMemory(plain)));
    engine.destroy();
  });

test('without shader-f16 the same spec runs in float32, with a message', async () => {
  const asked: DeviceSpec = { ...spec, config, weights, dtype: 'float16' };
  const used = await withOfferedDtype(asked);
  if (await offered()) return expect(dtypeNote(asked, used)).toBeUndefined();
  expect(dtypeNote(asked, used)).toBe(
    'float16 was requested, but this adapter has no shader-f16: everything stays in float32',
  );
  const [engine, plain] = [await createDeviceEngine(asked), await createDeviceEngine({ ...asked, dtype: undefined })];
  const samples = [{ tokens: Uint32Array.of(3, 4), mask: Uint8Array.of(1, 1) }];
  const [{ batch }] = packGroups([{ prompt: Uint32Array.of(1, 2), samples }], 64);
  expect(await engine.model.logProbs(batch, options)).toEqual(await plain.model.logProbs(batch, options));
  expect(engine.gpu.counters.bytes).toBe(plain.gpu.counters.bytes);
  engine.destroy();
  plain.destroy();
});

test('tfjs computes in float32 alone', async () => {
  await expect(createDeviceEngine({ ...spec, engine: 'tfjs', dtype: 'float16' })).rejects.toThrow(
    'Engine "tfjs" computes in float32 alone. Use engine "wgsl" for model.dtype=float16.',
  );
});

onHalves('an odd count of halves takes whole words', async (gpu) => {
  expect(gpu.halves('odd', 5)).toMatchObject({ bytes: 12, half: true });
});
