/** Compares the complete model on the GPU to stored Hugging Face numbers and to the float64 reference. */
import { describe, expect, test } from 'vitest';
import { type ModelConfig, parseModelConfig } from '../../src/model/config.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { createModel } from '../../src/model/llama.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { referenceBackward, referenceForward, toFloat64 } from '../../src/extensions/verify/reference/model.ts';
import { readSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { rng } from '../random.ts';
import { readShared } from '../shared.ts';
import { testGpu, withGpu } from './gpu.ts';
import { tinyConfig } from './tinyModel.ts';

interface Goldens {
  sequences: number[][];
  logprobs: number[][];
  coefficients: number[][];
  gradNorms: Record<string, number>;
}

async function engineOf(config: ModelConfig, weights: TensorMap): Promise<WgslEngine> {
  const gpu = await testGpu();
  const model = createModel(gpu, config, 128);
  model.weights.importTensors(weights);
  return new WgslEngine(gpu, model, 64);
}

const norm = (x: ArrayLike<number>) => Math.sqrt(Array.from(x).reduce((sum, v) => sum + v * v, 0));
const sequence = (ids: number[]) => ({
  prompt: Uint32Array.of(ids[0]),
  samples: [{ tokens: Uint32Array.from(ids.slice(1)), mask: new Uint8Array(ids.length - 1).fill(1) }],
});

describe.each(['llama-gqa-tied', 'qwen2-bias'])('stored numbers of %s', (name) => {
  test('log-probs to 1e-4, gradient norms to 1e-3, relative', async ({ skip }) => {
    const folder = `goldens/checkpoints/${name}`;
    const files = await Promise.all(
      ['config.json', 'goldens.json', 'model.safetensors'].map((f) => readShared(`${folder}/${f}`)),
    );
    if (files.some((f) => f === undefined)) return skip('../shared/goldens is not there');
    const [configJson, goldensJson, weightBytes] = files as Uint8Array[];
    const text = (bytes: Uint8Array) => JSON.parse(new TextDecoder().decode(bytes)) as unknown;
    const goldens = text(goldensJson) as Goldens;
    await withGpu(async () => {
      const engine = await engineOf(parseModelConfig(text(configJson)), readSafetensors(weightBytes));
      const [{ batch }] = packGroups(goldens.sequences.map(sequence), 4096);
      const dLogProbs = Float32Array.from(goldens.coefficients.flat());
      const { logProbs } = await engine.forwardBackward(batch, { kind: 'coefficients', dLogProbs }, { temperature: 1 });
      goldens.logprobs.flat().forEach((want, i) => expect(Math.abs(logProbs[i] / want - 1)).toBeLessThan(1e-4));
      const gradients = await engine.exportGradients();
      for (const [tensor, want] of Object.entries(goldens.gradNorms))
        expect(Math.abs(norm(gradients.get(tensor)!.data) / want - 1), tensor).toBeLessThan(1e-3);
    });
  });
});

const tiny: ModelConfig = { ...tinyConfig, tieWordEmbeddings: false, qkvBias: true };

test('groups with a shared prompt, masked tool tokens and a temperature match the reference, forward and backward', () =>
  withGpu(async () => {
    const weights = initWeights(tiny, 3);
    const engine = await engineOf(tiny, weights);
    const r = rng(5);
    const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(r.uniform() * tiny.vocabSize));
    const sample = (n: number) => ({
      tokens: ids(n),
      mask: Uint8Array.from({ length: n }, (_, t) => (t % 5 === 3 ? 0 : 1)),
    });
    const groups = [
      { prompt: ids(7), samples: [sample(5), sample(9), sample(1)] },
      { prompt: ids(3), samples: [sample(11), sample(6)] },
    ];
    const [{ batch }] = packGroups(groups, 4096);
    const E = batch.targets.length;
    const [dLogProbs, dEntropy] = [r.normals(E), r.normals(E)];
    const temperature = 0.7;
    const got = await engine.forwardBackward(batch, { kind: 'coefficients', dLogProbs, dEntropy }, { temperature });
    const forward = referenceForward(tiny, toFloat64(weights), batch, { temperature });
    for (let e = 0; e < E; e++) {
      expect(got.logProbs[e]).toBeCloseTo(forward.logProbs[e], 4);
      expect(got.entropy[e]).toBeCloseTo(forward.entropy[e], 4);
    }
    const want = referenceBackward(tiny, toFloat64(weights), batch, forward, { dLogProbs, dEntropy }, { temperature });
    for (const [name, { data }] of await engine.exportGradients()) {
      const expected = want.get(name)!;
      const off = norm(expected.map((v, i) => v - data[i]));
      expect(off / (norm(expected) + 1e-6), name).toBeLessThan(1e-4);
    }
  }));

test('a sequence longer than the RoPE table is refused, not computed wrongly', () =>
  withGpu(async () => {
    const engine = await engineOf(tiny, initWeights(tiny, 3));
    const [{ batch }] = packGroups([sequence(Array.from({ length: 140 }, (_, i) => i % 61))], 4096);
    await expect(engine.logProbs(batch, { temperature: 1 })).rejects.toThrow(
      'A sequence reaches position 138, but the engine was made for 128 positions.',
    );
  }));
