/** Compares the tfjs engine to the WGSL engine and the float64 reference, two independent implementations. */
import type { MemoryInfo } from '@tensorflow/tfjs';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { ModelEngine, PackedBatch, TensorMap } from '../../src/model/engine.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { referenceBackward, referenceForward, toFloat64 } from '../../src/extensions/verify/reference/model.ts';
import { createTfjsEngine, type TfjsEngineOptions } from '../../src/extensions/tfjs/engine.ts';
import { attentionChunks } from '../../src/extensions/tfjs/model.ts';
import { policyGradient } from '../../src/extensions/tfjs/policyGradient.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { expectClose } from '../close.ts';
import { rng } from '../random.ts';
import { recipeSpec } from '../recipeSpec.ts';
import { isFull } from './full.ts';
import { testGpu, withGpu } from './gpu.ts';
import { tinyConfig, tinyModel } from './tinyModel.ts';

/**
 * Shapes of models. The everyday tests use only the first, which needs every op. The others lack q/k norms or biases, or have a tied head.
 */
const shapes: Record<string, Partial<ModelConfig>> = {
  'untied, bias, q/k norm': { tieWordEmbeddings: false, qkvBias: true, qkNorm: true },
  ...(isFull && {
    'tied, no bias': {},
    'untied, bias': { tieWordEmbeddings: false, qkvBias: true },
    'q/k norm': { qkNorm: true, architecture: 'Qwen3ForCausalLM' },
  }),
};
const STEPS = isFull ? 3 : 1;
const LAYERS = { numHiddenLayers: isFull ? 2 : 1 };
const modelOf = (gpu: Gpu, change: Partial<ModelConfig> = {}) => tinyModel(gpu, { ...LAYERS, ...change });

// tfjs compiles some sixty pipelines, which takes a minute with a software adapter on a busy machine.
vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

// Imports and starts tfjs before the tests, so that no test's time limit includes this.
beforeAll(async () => {
  const gpu = await testGpu();
  await createTfjsEngine(gpu, modelOf(gpu), 64);
  // A software adapter compiles the engine's program for products for a second per kind of sizes. Tfjs's program for small ones has one kind.
  if (!isFull) (await import('@tensorflow/tfjs')).env().set('WEBGPU_MATMUL_PROGRAM_TYPE', 2);
});

async function tfjsOf(change: Partial<ModelConfig>, options: TfjsEngineOptions = {}): Promise<ModelEngine> {
  const gpu = await testGpu();
  return createTfjsEngine(gpu, modelOf(gpu, change), 64, options);
}

/**
 * Returns two groups with shared prompts and masked tool tokens; the first token of several samples is predicted from the end of the same
 * prompt.
 */
function groupsOf(seed: number) {
  const r = rng(seed);
  const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(r.uniform() * tinyConfig.vocabSize));
  const sample = (n: number) => ({
    tokens: ids(n),
    mask: Uint8Array.from({ length: n }, (_, t) => Number(t % 5 !== 3)),
  });
  const same = { tokens: Uint32Array.of(9, 4), mask: new Uint8Array(2).fill(1) };
  return [
    { prompt: ids(7), samples: [sample(5), sample(9), sample(1), same, same, same] },
    { prompt: ids(3), samples: [sample(11), sample(6)] },
  ];
}

const twoGroups = (seed = 5): PackedBatch => packGroups(groupsOf(seed), 4096)[0].batch;
const ROWS = twoGroups().tokens.length;

const norm = (x: ArrayLike<number>) => Math.sqrt(Array.from(x).reduce((sum, v) => sum + v * v, 0));
const distance = (a: ArrayLike<number>, b: ArrayLike<number>) => norm(Array.from(a, (v, i) => v - b[i]));

function expectTensorsClose(actual: TensorMap, expected: Map<string, ArrayLike<number>>, rtol: number): void {
  expect([...actual.keys()].sort()).toEqual([...expected.keys()].sort());
  for (const [name, { data }] of actual) {
    const want = expected.get(name)!;
    expect(distance(data, want) / (norm(want) + 1e-6), name).toBeLessThan(rtol);
  }
}

/** Memory counts of the WebGPU backend of tfjs. */
type GpuMemory = MemoryInfo & { numBytesAllocatedInGPU: number };

const plain = (tensors: TensorMap) => new Map(Array.from(tensors, ([name, { data }]) => [name, data]));

describe.each(Object.entries(shapes))('%s', (_, change) => {
  const config = { ...tinyConfig, ...LAYERS, ...change };

  // The everyday tests compare both to the WGSL engine, which is compared to the reference.
  test.runIf(isFull)('log-probs, entropies and gradients match the reference', () =>
    withGpu(async () => {
      const [engine, batch, r] = [await tfjsOf(change), twoGroups(), rng(8)];
      const E = batch.targets.length;
      const [dLogProbs, dEntropy] = [r.normals(E), r.normals(E)];
      const options = { temperature: 0.7 };
      const got = await engine.forwardBackward(batch, { kind: 'coefficients', dLogProbs, dEntropy }, options);
      const weights = toFloat64(initWeights(config, 3));
      const forward = referenceForward(config, weights, batch, options);
      for (let e = 0; e < E; e++) {
        expect(got.logProbs[e]).toBeCloseTo(forward.logProbs[e], 4);
        expect(got.entropy[e]).toBeCloseTo(forward.entropy[e], 4);
      }
      const want = referenceBackward(config, weights, batch, forward, { dLogProbs, dEntropy }, options);
      expectTensorsClose(await engine.exportGradients(), want, 1e-4);
    }),
  );

  test(`supervised training ends at the weights of the WGSL engine, to 1e-3`, () =>
    withGpu(async (gpu) => {
      const engines = [new WgslEngine(gpu, modelOf(gpu, change), 64), await tfjsOf(change)];
      const adamw = { lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.1, gradClip: 1 };
      for (const engine of engines) {
        for (let step = 0; step < STEPS; step++) {
          // Each step has two micro-batches, whose gradients accumulate.
          for (const seed of [step, step + 10]) {
            const batch = twoGroups(seed);
            const weights = new Float32Array(batch.targets.length).fill(1 / batch.targets.length);
            await engine.forwardBackward(batch, { kind: 'nll', weights }, { temperature: 1 });
          }
          expect((await engine.optimizerStep(adamw)).skipped).toBe(false);
        }
      }
      const [wgsl, tfjs] = [await engines[0].exportWeights(), await engines[1].exportWeights()];
      expectTensorsClose(tfjs, plain(wgsl), 1e-3);
      const start = initWeights(config, 3).get('model.embed_tokens.weight')!.data;
      const moved = distance(tfjs.get('model.embed_tokens.weight')!.data, start) / norm(start);
      expect(moved).toBeGreaterThan(1e-2);
    }));
});

const group = (prompt: number[], ...samples: number[][]) => ({
  prompt: Uint32Array.from(prompt),
  samples: samples.map((ids) => ({ tokens: Uint32Array.from(ids), mask: new Uint8Array(ids.length).fill(1) })),
});
const long = (seed: number, n: number) => Array.from({ length: n }, (_, t) => (seed + t * t) % tinyConfig.vocabSize);

const manyRows = [group(long(1, 60), long(2, 60), long(3, 30)), group(long(4, 9), long(5, 99), long(6, 9))];
const manyTokens = [
  group(long(7, 70), long(8, 57), long(9, 57), long(1, 57), long(2, 57)),
  group(long(3, 30), long(4, 30)),
];

test.each([
  ...(isFull
    ? [
        { name: 'one row that predicts three times', groups: [group([5], [7], [7], [9])], cuts: [0, 1] },
        { name: 'groups in separate attention chunks', groups: manyRows, cuts: [0, 148, 263] },
        { name: 'one group larger than a chunk', groups: manyTokens, cuts: [0, 294, 353] },
        { name: 'two rows of logits', groups: [group([3, 1], [4, 1, 5], [9, 2, 6])], cuts: [0, 6], logitsRows: 2 },
      ]
    : []),
  // The sizes of the other tests, because tfjs compiles a product for each combination of sizes.
  { name: 'logits in chunks of rows', groups: groupsOf(5), cuts: [0, ROWS], logitsRows: 17 },
])('$name: as the WGSL engine', ({ groups, cuts, logitsRows = 1000 }) =>
  withGpu(async (gpu) => {
    const [{ batch }] = packGroups(groups, 512);
    expect([0, ...attentionChunks(batch.ranges).map(({ end }) => end)]).toEqual(cuts);
    const logitsBytes = logitsRows * tinyConfig.vocabSize * 4;
    const tfjsEngine = await createTfjsEngine(gpu, modelOf(gpu), 512, { logitsBytes });
    const engines = [new WgslEngine(gpu, modelOf(gpu), 512), tfjsEngine];
    const dLogProbs = rng(2).normals(batch.targets.length);
    const loss = { kind: 'coefficients', dLogProbs, dEntropy: dLogProbs.map((g) => 1 - g) } as const;
    const [wgsl, tfjs] = [
      await engines[0].forwardBackward(batch, loss, { temperature: 1.3 }),
      await engines[1].forwardBackward(batch, loss, { temperature: 1.3 }),
    ];
    expectClose(tfjs.logProbs, wgsl.logProbs, { rtol: 1e-5, atol: 1e-5 });
    expectClose(tfjs.entropy, wgsl.entropy, { rtol: 1e-5, atol: 1e-5 });
    expectTensorsClose(await engines[1].exportGradients(), plain(await engines[0].exportGradients()), 1e-4);
  }),
);

test('logProbs changes nothing and agrees with forwardBackward; the same batch gives the same bits', () =>
  withGpu(async () => {
    const [engine, batch] = [await tfjsOf({}), twoGroups()];
    const loss = { kind: 'nll', weights: new Float32Array(batch.targets.length).fill(0.1) } as const;
    const before = await engine.logProbs(batch, { temperature: 1 });
    const first = await engine.forwardBackward(batch, loss, { temperature: 1 });
    expect(first).toEqual(before);
    const once = await engine.exportGradients();
    await engine.forwardBackward(batch, loss, { temperature: 1 });
    const twice = await engine.exportGradients();
    for (const [name, { data }] of once) expect(twice.get(name)!.data, name).toEqual(data.map((v) => 2 * v));
  }));

test.each([
  ['vanilla, KL and entropy', recipeSpec('dapo', { klLossCoef: 0.2, klLossType: 'k3', entropyCoeff: 0.05 })] as const,
  ...(isFull ? [['gspo', recipeSpec('gspo')] as const] : []),
])('policy loss %s: on the CPU in float64 here, fused on the GPU there', (_, spec) =>
  withGpu(async (gpu) => {
    const engines = [new WgslEngine(gpu, modelOf(gpu), 64), await tfjsOf({}, { policyGradient })];
    const [batch, r] = [twoGroups(), rng(4)];
    const E = batch.targets.length;
    const { logProbs } = await engines[0].logProbs(batch, { temperature: 1 });
    const inputs = {
      oldLogProbs: logProbs.map((x) => x + 0.2 * r.normals(1)[0]),
      refLogProbs: logProbs.map((x) => x + 0.5 * r.normals(1)[0]),
      advantages: r.normals(E),
      weights: r.normals(E).map(Math.abs),
      klWeights: r.normals(E).map(Math.abs),
    };
    for (const engine of engines)
      await engine.forwardBackward(batch, { kind: 'policy', spec, inputs }, { temperature: 1 });
    expectTensorsClose(await engines[1].exportGradients(), plain(await engines[0].exportGradients()), 2e-4);
    const without = (await tfjsOf({})).forwardBackward(batch, { kind: 'policy', spec, inputs }, { temperature: 1 });
    await expect(without).rejects.toThrow(
      'Engine "tfjs" was made without a policyGradient, so it cannot train with a policy loss.',
    );
  }),
);

test.runIf(isFull)('steps leave no tensor behind, and batches of other sizes no buffers', () =>
  withGpu(async (gpu) => {
    const tf = await import('@tensorflow/tfjs');
    const engine = await tfjsOf({ qkvBias: true }, { logitsBytes: 20 * tinyConfig.vocabSize * 4 });
    const step = async (batch: PackedBatch) => {
      const weights = new Float32Array(batch.targets.length).fill(1);
      await engine.forwardBackward(batch, { kind: 'nll', weights }, { temperature: 1 });
      await engine.optimizerStep({ lr: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClip: 1 });
    };
    const bytes = () => (tf.memory() as GpuMemory).numBytesAllocatedInGPU;
    await step(twoGroups());
    const [tensors, gpuBytes, { buffers, bindGroups }] = [tf.memory().numTensors, bytes(), { ...gpu.counters }];
    for (let i = 0; i < 3; i++) await step(twoGroups());
    expect(tf.memory().numTensors).toBe(tensors);
    expect(bytes()).toBe(gpuBytes);
    for (let i = 2; i < 6; i++) {
      const prompt = new Uint32Array(5 * i).fill(i);
      await step(
        packGroups([{ prompt, samples: [{ tokens: prompt, mask: new Uint8Array(5 * i).fill(1) }] }], 4096)[0].batch,
      );
    }
    await step(twoGroups());
    expect(tf.memory().numTensors).toBe(tensors);
    expect(bytes()).toBe(gpuBytes);
    expect([gpu.counters.buffers, gpu.counters.bindGroups]).toEqual([buffers, bindGroups]);
  }),
);

test('refuses what does not fit, with numbers', async () => {
  const gpu = await testGpu();
  const limit = gpu.device.limits.maxStorageBufferBindingSize;
  await expect(createTfjsEngine(gpu, modelOf(gpu), 1 << 20)).rejects.toThrow(
    `Engine "tfjs" needs ${4 * 2 ** 42} bytes for the attention scores of 1048576 rows but this device binds at most ` +
      `${limit}. Lower actor.ppoMaxTokenLenPerGpu to ${Math.floor(Math.sqrt(limit / 16))}, or use engine "wgsl".`,
  );
  const engine = await tfjsOf({});
  const batch = (n: number) => packGroups([group(long(1, n), [1])], 512)[0].batch;
  await expect(engine.logProbs(batch(65), { temperature: 1 })).rejects.toThrow(
    'A batch of 65 rows came to an engine made for 64.',
  );
  const wide = await createTfjsEngine(gpu, modelOf(gpu), 512);
  await expect(wide.logProbs(batch(129), { temperature: 1 })).rejects.toThrow(
    'Position 128 came to a model made for positions up to 127.',
  );
});
