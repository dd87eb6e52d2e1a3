/** Tests frozen weights with fewer bits: a model with packed weights equals one with the unpacked values, and needs less memory. */
import { describe, expect, test } from 'vitest';
import { Gpu } from '../../src/gpu/device.ts';
import { PACKED_FORMATS, type PackedFormat } from '../../src/gpu/packedFormat.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import { BLOCKS, PACKED_AS, repackBlocks, unpackBlocks } from '../../src/extensions/gguf/blocks.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { loadModel } from '../../src/model/weights/load.ts';
import type { StoredFormats } from '../../src/model/weights/plan.ts';
import type { WeightSource } from '../../src/model/checkpoint/open.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { createDeviceEngine, type DeviceSpec } from '../../src/workers/localEngine.ts';
import { planMemory, totalBytes } from '../../src/workers/memoryPlan.ts';
import { rng } from '../random.ts';
import { recipeSpec } from '../recipeSpec.ts';
import { isFull } from './full.ts';
import { expectPlanned } from './planned.ts';
import { loraOf, tinyConfig } from './tinyModel.ts';

const config = { ...tinyConfig, architecture: 'Qwen2ForCausalLM', qkvBias: true, vocabSize: 300 } as const;
const lora = loraOf(4);
const adam = { lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClip: 1 };

/** Splits weights into pieces of five rows, so that the parts of a matrix arrive one after another. */
const inPieces = (weights: TensorMap): WeightSource => ({
  async *pieces() {
    for (const [name, { shape, data }] of weights) {
      const row = shape[1] ?? 1;
      for (let first = 0; first < data.length; first += 5 * row)
        yield { name, shape, first, data: data.slice(first, first + 5 * row) };
    }
  },
});

/** A config in which all sizes are multiples of 8, so that matrix products read packed weights directly. */
const even = { ...config, vocabSize: 296, hiddenSize: 24, intermediateSize: 40, headDim: 8 };

/** Returns log-probs, two updates of the adapters, and sampled tokens. */
async function run(
  gpu: Gpu,
  config: ModelConfig,
  weights: TensorMap | WeightSource,
  format?: PackedFormat,
  stored?: StoredFormats,
) {
  const model = await loadModel(gpu, config, 64, weights, { lora, form: format, stored });
  const engine = new WgslEngine(gpu, model, 64);
  const r = rng(5);
  const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(r.uniform() * config.vocabSize));
  const samples = [{ tokens: ids(12), mask: new Uint8Array(12).fill(1) }];
  const [{ batch }] = packGroups([{ prompt: ids(5), samples }], 64);
  const { logProbs } = await engine.logProbs(batch, { temperature: 1 });
  for (let step = 0; step < 2; step++) {
    const dLogProbs = Float32Array.from(r.normals(12));
    await engine.forwardBackward(batch, { kind: 'coefficients', dLogProbs }, { temperature: 1 });
    await engine.optimizerStep(adam);
  }
  const sizes = { maxNumSeqs: 2, slotCapacity: 16, maxPrompts: 2, maxPromptLength: 16, maxBatchedTokens: 64 };
  const rollout = new WgslRolloutEngine(gpu, model, sizes);
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 8, stopTokenIds: [] };
  const key: [number, number] = [1, 1];
  const drawn = await rollout.generate({ requestId: 'a', contextIds: ids(4), promptLength: 4, key, sampling });
  return { logProbs, drawn, adapters: await engine.exportWeights(), base: await model.weights.exportTensors() };
}

describe.each(PACKED_FORMATS)('%s', (format) => {
  test.each([
    ...(isFull ? [['unpacked first', config, {}] as const] : []),
    // The everyday tests use only one format, because the formats differ only in their kernels for unpacking.
    ...(isFull || format === 'int4'
      ? [
          ['unpacked first, a table in chunks', config, { maxArenaBytes: 2 * 64 * 20 * 4 }] as const,
          ['read as they are, a table in chunks', even, { maxArenaBytes: 2 * 64 * 24 * 4 }] as const,
        ]
      : []),
  ])('%s: the same as float32 weights of the values that are left', async (_, config, options) => {
    const gpu = await Gpu.create(options);
    const packed = await run(gpu, config, inPieces(initWeights(config, 3)), format);
    const plain = await run(gpu, config, packed.base);
    expect(packed.logProbs).toEqual(plain.logProbs);
    expect(packed.drawn).toEqual(plain.drawn);
    expect(packed.adapters).toEqual(plain.adapters);
    const whole = await loadModel(gpu, config, 64, initWeights(config, 3), { lora, form: format });
    expect(await whole.weights.exportTensors()).toEqual(packed.base);
    gpu.destroy();
  });

  // pack_unpack.test.ts compares the values of every format every day.
  test.runIf(isFull || format === 'int4')('biases and norms are unchanged, and matrices are close', async () => {
    const gpu = await Gpu.create();
    const weights = initWeights(config, 3);
    const model = await loadModel(gpu, config, 16, weights, { lora, form: format });
    const steps = { float16: 2 ** -11, int8: 2 ** -7, int4: 2 ** -3 };
    for (const [name, { shape, data }] of await model.weights.exportTensors()) {
      const before = weights.get(name)!.data;
      if (shape.length === 1) expect(data).toEqual(before);
      const top = before.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
      data.forEach((v, i) => expect(Math.abs(v - before[i])).toBeLessThanOrEqual(top * steps[format] * 1.001));
    }
    gpu.destroy();
  });
});

/** Returns a weight source with matrices as blocks of a GGUF file, in pieces of 24 rows, and tensors without a type as float32. */
function inBlocks(config: ModelConfig, typeOf: (name: string) => 'Q8_0' | 'Q4_0' | undefined) {
  const r = rng(9);
  const weights: TensorMap = initWeights(config, 3);
  const blocks = new Map<string, { type: 'Q8_0' | 'Q4_0'; bytes: Uint8Array }>();
  for (const [name, tensor] of weights) {
    const type = tensor.shape.length === 2 ? typeOf(name) : undefined;
    if (!type) continue;
    const width = BLOCKS[type].bytes;
    const bytes = Uint8Array.from({ length: (tensor.data.length / 32) * width }, () => 256 * r.uniform());
    for (let at = 0; at < bytes.length; at += width) bytes.set([bytes[at], 0x18 + (at % 5)], at); // scales of 0.002 to 0.01
    tensor.data.set(unpackBlocks(type, bytes));
    blocks.set(name, { type, bytes });
  }
  const stored = Object.fromEntries([...blocks].map(([name, { type }]) => [name, PACKED_AS[type]!]));
  const source: WeightSource = {
    async *pieces() {
      for (const [name, { shape, data }] of weights) {
        const step = 24 * (shape[1] ?? data.length); // pieces that reach into two chunks of a table
        for (let first = 0; first < data.length; first += step) {
          const found = blocks.get(name);
          const width = found ? BLOCKS[found.type].bytes / 32 : 0;
          const words = async () =>
            repackBlocks(stored[name], found!.bytes.subarray(first * width, (first + step) * width));
          yield { name, shape, first, data: data.slice(first, first + step), ...(found && { words }) };
        }
      }
    },
  };
  return { source, stored, weights };
}

describe('packed by the file that they are from', () => {
  const wide = { ...config, vocabSize: 296, hiddenSize: 32, intermediateSize: 64, headDim: 8 };
  const mixed = (name: string) =>
    name.includes('embed') ? 'Q8_0' : /k_proj|down_proj/.test(name) ? undefined : ('Q4_0' as const);

  test.each([
    // The everyday tests read this format next to the other one.
    ...(isFull ? [['Q8_0', wide, () => 'Q8_0' as const, {}] as const] : []),
    [
      'Q4_0, a head of its own, tables in chunks',
      { ...wide, tieWordEmbeddings: false },
      () => 'Q4_0' as const,
      { maxArenaBytes: 2 * 64 * 32 * 4 },
    ],
    ['Q8_0 and Q4_0, and matrices that are in neither', wide, mixed, {}],
  ] as const)('%s: bit for bit, and the same as float32', async (_, config, typeOf, options) => {
    const gpu = await Gpu.create(options);
    const { source, stored, weights } = inBlocks(config, typeOf);
    const packed = await run(gpu, config, source, undefined, stored);
    const bytes = gpu.counters.bytes;
    const plain = await run(gpu, config, weights, undefined, stored); // weights in memory are not packed
    expect(packed.base).toEqual(plain.base);
    expect(packed.base).toEqual(weights);
    expect(gpu.counters.bytes - bytes).toBeGreaterThan(bytes);
    expect(packed.logProbs).toEqual(plain.logProbs);
    expect(packed.drawn).toEqual(plain.drawn);
    expect(packed.adapters).toEqual(plain.adapters);
    gpu.destroy();
  });
});

const big = { ...config, vocabSize: 1000, hiddenSize: 64, headDim: 8, intermediateSize: 192 };
const spec: DeviceSpec = {
  engine: 'wgsl',
  config: big,
  weights: initWeights(big, 1),
  lora,
  maxTokenLen: 128,
  maxPositions: 64,
  rollout: { maxNumSeqs: 2, slotCapacity: 32, maxPrompts: 2, maxPromptLength: 32, maxBatchedTokens: 64 },
};

const ofFile = inBlocks(big, () => 'Q4_0');
test.each<[string, DeviceSpec]>([
  // The everyday tests plan one format, because the formats differ only in their bits per weight.
  ...PACKED_FORMATS.filter((format) => isFull || format === 'int4').map((format): [string, DeviceSpec] => [
    format,
    { ...spec, weightFormat: format },
  ]),
  ['packed by their file', { ...spec, weights: ofFile.source, packed: ofFile.stored }],
])('%s: the plan is what is allocated, and less than float32', async (_, packed) => {
  const engine = await createDeviceEngine(packed);
  const samples = [{ tokens: Uint32Array.of(3, 4), mask: Uint8Array.of(1, 1) }];
  const [{ batch }] = packGroups([{ prompt: Uint32Array.of(1, 2), samples }], 64);
  const ones = Float32Array.of(1, 1);
  const inputs = { oldLogProbs: ones, advantages: ones, weights: ones, klWeights: ones };
  const loss = { kind: 'policy' as const, spec: recipeSpec('grpo'), inputs };
  await engine.model.forwardBackward(batch, loss, { temperature: 1 });
  await engine.model.optimizerStep(adam);
  expectPlanned(packed, engine.gpu.counters);
  expect(totalBytes(planMemory(packed))).toBeLessThan(totalBytes(planMemory(spec)));
  engine.destroy();
});

test('weights that are trained cannot be packed', async () => {
  const { lora: _, ...all } = spec;
  await expect(createDeviceEngine({ ...all, weightFormat: 'int8' })).rejects.toThrow(
    'model.quantization is "int8", which freezes the weights, but they are to be trained. Set model.loraRank to train an adapter, or remove model.quantization.',
  );
});
