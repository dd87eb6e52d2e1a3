/** Compares every shape of model that a config can request to the float64 reference, and tests weights that arrive in pieces. */
import { describe, expect, test } from 'vitest';
import { type ModelCheckpoint, filesOf, saveCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { loadModel } from '../../src/model/weights/load.ts';
import { openCheckpoint } from '../../src/model/checkpoint/open.ts';
import type { CheckpointFiles } from '../../src/model/checkpoint/sourceFiles.ts';
import { packGroups } from '../../src/model/packing.ts';
import { elementCount, parameterSpecs } from '../../src/model/params.ts';
import { referenceBackward, referenceForward, toFloat64 } from '../../src/extensions/verify/reference/model.ts';
import { writeSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { rng } from '../random.ts';
import { withGpu } from './gpu.ts';
import { tinyConfig } from './tinyModel.ts';

const LLAMA3 = {
  ropeType: 'llama3' as const,
  factor: 8,
  lowFreqFactor: 1,
  highFreqFactor: 4,
  originalMaxPositionEmbeddings: 32,
};
const SHAPES: [string, Partial<ModelConfig>][] = [
  ['Llama: llama3 RoPE scaling, untied head', { ropeScaling: LLAMA3, tieWordEmbeddings: false }],
  ['Llama: linear RoPE scaling, one key head', { ropeScaling: { ropeType: 'linear', factor: 4 }, numKeyValueHeads: 1 }],
  ['Llama: attention_bias on all four products', { qkvBias: true, oBias: true }],
  ['Llama: mlp_bias', { mlpBias: true, hiddenSize: 24, headDim: 10 }],
  ['Qwen2: bias on q, k and v alone', { architecture: 'Qwen2ForCausalLM', qkvBias: true, ropeTheta: 1e6 }],
  ['Qwen3: q/k norm, head dim not C / H', { architecture: 'Qwen3ForCausalLM', qkNorm: true, headDim: 8 }],
  [
    'Qwen3: the same with attention_bias, untied',
    {
      architecture: 'Qwen3ForCausalLM',
      qkNorm: true,
      headDim: 8,
      qkvBias: true,
      oBias: true,
      tieWordEmbeddings: false,
    },
  ],
];

/** Returns weights without zeros and ones, including biases and norms. */
function randomWeights(config: ModelConfig): TensorMap {
  const random = rng(11);
  return new Map(
    parameterSpecs(config).map(({ name, shape }) => {
      const values = random.normals(elementCount(shape), 0.3);
      return [name, { shape, data: Float32Array.from(values, (v) => v + Number(name.endsWith('norm.weight'))) }];
    }),
  );
}

const norm = (x: ArrayLike<number>) => Math.sqrt(Array.from(x).reduce((sum, v) => sum + v * v, 0));

describe.each(SHAPES)('%s', (_, change) => {
  const config: ModelConfig = { ...tinyConfig, ...change };

  test('log-probs and gradients to 1e-4, relative', () =>
    withGpu(async (gpu) => {
      const weights = randomWeights(config);
      const engine = new WgslEngine(gpu, await loadModel(gpu, config, 128, weights), 128);
      const random = rng(7);
      const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(random.uniform() * config.vocabSize));
      const groups = [2, 17, 90].map((n) => ({
        prompt: ids(1),
        samples: [{ tokens: ids(n), mask: new Uint8Array(n).fill(1) }],
      }));
      const [{ batch }] = packGroups(groups, 4096);
      const dLogProbs = Float32Array.from(random.normals(batch.targets.length));
      const got = await engine.forwardBackward(batch, { kind: 'coefficients', dLogProbs }, { temperature: 1 });
      const wide = toFloat64(weights);
      const forward = referenceForward(config, wide, batch);
      forward.logProbs.forEach((want, e) => expect(Math.abs(got.logProbs[e] / want - 1)).toBeLessThan(1e-4));
      const want = referenceBackward(config, wide, batch, forward, { dLogProbs });
      for (const [name, { data }] of await engine.exportGradients()) {
        const reference = want.get(name)!;
        expect(norm(reference.map((v, i) => v - data[i])) / norm(reference), name).toBeLessThan(1e-4);
      }
    }));

  test('in pieces: the same weights on the device, half precision too', () =>
    withGpu(async (gpu) => {
      const weights = randomWeights(config);
      for (const dtype of ['F32', 'BF16', 'F16'] as const) {
        const { weights: source } = await openCheckpoint(inMemory({ config, weights }, dtype));
        const whole: TensorMap = new Map();
        for await (const { name, shape, data } of source.pieces()) whole.set(name, { shape, data });
        if (dtype === 'F32') expect(whole).toEqual(weights);
        const model = await loadModel(gpu, config, 16, source);
        expect(await model.weights.exportTensors()).toEqual(whole);
      }
    }));
});

const inMemory = (checkpoint: ModelCheckpoint, dtype: 'F32' | 'F16' | 'BF16' = 'F32'): CheckpointFiles => {
  const files = saveCheckpoint(checkpoint, dtype);
  return filesOf((path) => Promise.resolve(files.get(path)));
};

test('a tensor of many pieces: host memory stays at a few pieces, and every value arrives', () =>
  withGpu(async (gpu) => {
    // Sizes that make an embedding and matrices larger than a piece of 8 MiB.
    const config = { ...tinyConfig, vocabSize: 14_000, hiddenSize: 156, intermediateSize: 13_600, numHiddenLayers: 1 };
    const weights: TensorMap = new Map(
      parameterSpecs(config).map(({ name, shape }, t) => {
        const data = Float32Array.from({ length: elementCount(shape) }, (_, i) => (i % 65_521) + t * 65_536);
        return [name, { shape, data }];
      }),
    );
    const files = inMemory({ config, weights });
    let largest = 0;
    const counting: CheckpointFiles = {
      size: (path) => files.size(path),
      read(path, begin, end) {
        largest = Math.max(largest, end - begin);
        return files.read(path, begin, end);
      },
    };
    const { weights: source } = await openCheckpoint(counting);
    const model = await loadModel(gpu, config, 16, source);
    expect(largest).toBeLessThanOrEqual(8 << 20);
    const got = await model.weights.exportTensors();
    for (const [name, { data }] of weights) {
      const other = got.get(name)!.data;
      expect(
        data.findIndex((v, i) => v !== other[i]),
        name,
      ).toBe(-1);
    }
    model.weights.free();
  }));

test('a failure during creation frees what was allocated', () =>
  withGpu(async (gpu) => {
    const weights = randomWeights(tinyConfig);
    const name = 'model.layers.1.mlp.down_proj.weight';
    weights.get(name)!.data[37] = NaN;
    const files = saveCheckpoint({ config: tinyConfig, weights: randomWeights(tinyConfig) });
    files.set('model.safetensors', writeSafetensors(weights));
    const { weights: source } = await openCheckpoint(filesOf((path) => Promise.resolve(files.get(path))));
    const before = { ...gpu.counters };
    await expect(loadModel(gpu, tinyConfig, 16, source)).rejects.toThrow(
      `model.safetensors: tensor "${name}" holds NaN at element 37. The weights are damaged.`,
    );
    await expect(loadModel(gpu, tinyConfig, 16, new Map())).rejects.toThrow('The checkpoint has no "model.embed_');
    expect([gpu.counters.buffers, gpu.counters.bytes]).toEqual([before.buffers, before.bytes]);
  }));
