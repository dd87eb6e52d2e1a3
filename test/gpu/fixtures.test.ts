/** Compares the complete model on the GPU to the two checkpoints in the repository: Qwen2's bias, Qwen3's q/k norm. */
import { describe, expect, test } from 'vitest';
import { parseModelConfig } from '../../src/model/config.ts';
import { createModel } from '../../src/model/llama.ts';
import { packGroups } from '../../src/model/packing.ts';
import { referenceBackward, referenceForward, toFloat64 } from '../../src/extensions/verify/reference/model.ts';
import { readSafetensors } from '../../src/model/checkpoint/safetensors.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { testGpu, withGpu } from './gpu.ts';
import { readFixture, readFixtureJson } from './readFixture.ts';

interface Goldens {
  sequences: number[][];
  logprobs: number[][];
  coefficients: number[][];
  gradNorms: Record<string, number>;
}

const norm = (x: ArrayLike<number>) => Math.sqrt(Array.from(x).reduce((sum, v) => sum + v * v, 0));
const sequence = (ids: number[]) => ({
  prompt: Uint32Array.of(ids[0]),
  samples: [{ tokens: Uint32Array.from(ids.slice(1)), mask: new Uint8Array(ids.length - 1).fill(1) }],
});

async function load(name: string) {
  const goldens = await readFixtureJson<Goldens>(`${name}/goldens.json`);
  const config = parseModelConfig(await readFixtureJson(`${name}/config.json`));
  const weights = readSafetensors(await readFixture(`${name}/model.safetensors`));
  const model = createModel(await testGpu(), config, 128);
  model.weights.importTensors(weights);
  return { goldens, config, weights, model };
}

describe.each(['tiny-qwen2', 'tiny-qwen3'])('%s', (name) => {
  test('log-probs to 1e-4, gradients and their norms to 1e-3, relative', () =>
    withGpu(async (gpu) => {
      const { goldens, config, weights, model } = await load(name);
      const engine = new WgslEngine(gpu, model, 64);
      const [{ batch }] = packGroups(goldens.sequences.map(sequence), 4096);
      const dLogProbs = Float32Array.from(goldens.coefficients.flat());
      const { logProbs } = await engine.forwardBackward(batch, { kind: 'coefficients', dLogProbs }, { temperature: 1 });
      goldens.logprobs.flat().forEach((want, i) => expect(Math.abs(logProbs[i] / want - 1)).toBeLessThan(1e-4));

      const forward = referenceForward(config, toFloat64(weights), batch);
      const reference = referenceBackward(config, toFloat64(weights), batch, forward, { dLogProbs });
      const gradients = await engine.exportGradients();
      expect([...gradients.keys()].sort()).toEqual(Object.keys(goldens.gradNorms).sort());
      for (const [tensor, { data }] of gradients) {
        expect(Math.abs(norm(data) / goldens.gradNorms[tensor] - 1), tensor).toBeLessThan(1e-3);
        const want = reference.get(tensor)!;
        expect(norm(want.map((v, i) => v - data[i])) / norm(want), tensor).toBeLessThan(1e-3);
      }
    }));

  test('decoding records the log-probs that training computes, bit for bit', () =>
    withGpu(async (gpu) => {
      const { goldens, model } = await load(name);
      const sizes = { maxNumSeqs: 5, slotCapacity: 12, maxPrompts: 2, maxPromptLength: 20, maxBatchedTokens: 24 };
      const rollout = new WgslRolloutEngine(gpu, model, sizes);
      const trainer = new WgslEngine(gpu, model, 64);
      const prompt = Uint32Array.from(goldens.sequences[1]);
      const sampling = { temperature: 0.9, topK: 0, topP: 1, minP: 0, maxNewTokens: 9, stopTokenIds: [] };
      const generations = await Promise.all(
        [0, 1, 2].map((sample) =>
          rollout.generate({
            requestId: `${sample}`,
            contextIds: prompt,
            promptLength: prompt.length,
            key: [17, sample],
            sampling,
          }),
        ),
      );
      const samples = generations.map(({ tokenIds }) => ({
        tokens: Uint32Array.from(tokenIds),
        mask: new Uint8Array(tokenIds.length).fill(1),
      }));
      const [{ batch }] = packGroups([{ prompt, samples }], 4096);
      const { logProbs } = await trainer.logProbs(batch, { temperature: 0.9 });
      expect([...logProbs]).toEqual(generations.flatMap((g) => [...g.logProbs]));
      expect(logProbs.length).toBe(27);
    }));
});
