/** Tests adapters in the complete model: gradients, frozen weights, dropout, rollout, memory. */
import { describe, expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { PackedBatch, TensorMap } from '../../src/model/engine.ts';
import { createModel, type LlamaModel } from '../../src/model/llama.ts';
import { type LoraConfig, loraGroups, loraScale, peftName } from '../../src/model/lora/weights.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { loraMerge, loraMergeBwd } from '../../src/extensions/verify/reference/ops.ts';
import {
  referenceBackward,
  referenceForward,
  toFloat64,
  type Weights64,
} from '../../src/extensions/verify/reference/model.ts';
import { WgslEngine, type WgslEngineOptions } from '../../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { rng } from '../random.ts';
import { testGpu, withGpu } from './gpu.ts';
import { loraOf, tinyConfig } from './tinyModel.ts';

const LORA = loraOf(3, { seed: 5 });
const STEP = { lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClip: 1 };
const norm = (x: ArrayLike<number>) => Math.sqrt(Array.from(x).reduce((sum, v) => sum + v * v, 0));

function loraModel(gpu: Gpu, lora: LoraConfig | undefined, config: ModelConfig = tinyConfig): LlamaModel {
  const model = createModel(gpu, config, 128, { lora });
  model.weights.importTensors(initWeights(config, 3));
  return model;
}

/** Changes adapters from their initial values, so that every gradient is non-zero. */
async function stir(model: LlamaModel): Promise<TensorMap> {
  const r = rng(8);
  const tensors = await model.lora!.weights.exportTensors();
  for (const [name, { shape, data }] of tensors) tensors.set(name, { shape, data: r.normals(data.length, 0.2) });
  model.lora!.weights.importTensors(tensors);
  return tensors;
}

function exampleBatch(): PackedBatch {
  const r = rng(5);
  const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(r.uniform() * tinyConfig.vocabSize));
  const sample = (n: number) => ({
    tokens: ids(n),
    mask: Uint8Array.from({ length: n }, (_, t) => Number(t % 5 !== 3)),
  });
  const groups = [
    { prompt: ids(7), samples: [sample(5), sample(9), sample(1)] },
    { prompt: ids(3), samples: [sample(11), sample(6)] },
  ];
  return packGroups(groups, 4096)[0].batch;
}
const batch = exampleBatch();
const E = batch.targets.length;
const loss = { kind: 'coefficients' as const, dLogProbs: rng(6).normals(E), dEntropy: rng(7).normals(E) };
const options = { temperature: 0.7 };

const CASES: [string, Partial<LoraConfig>, Partial<ModelConfig>][] = [
  ['all-linear', {}, {}],
  ['q and v', { targetModules: ['q_proj', 'v_proj'] }, { qkvBias: true, tieWordEmbeddings: false }],
  ['k, o and up, rank-stabilised', { targetModules: ['k_proj', 'o_proj', 'up_proj'], useRslora: true, rank: 5 }, {}],
  ['all-linear with q/k norm', { rank: 1 }, { architecture: 'Qwen3ForCausalLM', qkNorm: true }],
];

describe.each(CASES)('%s', (_, loraChange, configChange) => {
  const lora = { ...LORA, ...loraChange };
  const config = { ...tinyConfig, ...configChange };

  test('log-probs and gradients are those of the merged model in float64', () =>
    withGpu(async (gpu) => {
      const model = loraModel(gpu, lora, config);
      const adapter = toFloat64(await stir(model));
      const engine = new WgslEngine(gpu, model, 64);
      const got = await engine.forwardBackward(batch, loss, options);
      const base = toFloat64(initWeights(config, 3));
      const { merged, backward } = mergedModel(config, lora, base, adapter);
      const forward = referenceForward(config, merged, batch, options);
      for (let e = 0; e < E; e++) expect(got.logProbs[e]).toBeCloseTo(forward.logProbs[e], 4);
      const want = backward(referenceBackward(config, merged, batch, forward, loss, options));
      const gradients = await engine.exportGradients();
      expect([...gradients.keys()].sort()).toEqual([...want.keys()].sort());
      for (const [name, { data }] of gradients) {
        const expected = want.get(name)!;
        expect(norm(expected), name).toBeGreaterThan(1e-3);
        expect(norm(expected.map((v, i) => v - data[i])) / norm(expected), name).toBeLessThan(1e-4);
      }
    }));
});

function mergedModel(config: ModelConfig, lora: LoraConfig, base: Weights64, adapter: Weights64) {
  const merged = new Map(base);
  const places = loraGroups(config, lora.targetModules).flatMap(({ I, modules }) =>
    Array.from({ length: config.numHiddenLayers }, (_, l) => modules.map(({ name }) => ({ l, name, I }))).flat(),
  );
  const halves = (l: number, name: string) =>
    [adapter.get(peftName(l, name, 'A'))!, adapter.get(peftName(l, name, 'B'))!] as const;
  for (const { l, name, I } of places) {
    const weight = `model.layers.${l}.${name}.weight`;
    merged.set(weight, loraMerge(base.get(weight)!, ...halves(l, name), I, loraScale(lora)));
  }
  const backward = (dense: Weights64): Weights64 =>
    new Map(
      places.flatMap(({ l, name, I }) => {
        const dweight = dense.get(`model.layers.${l}.${name}.weight`)!;
        const { da, db } = loraMergeBwd(dweight, ...halves(l, name), I, loraScale(lora));
        return [
          [peftName(l, name, 'A'), da],
          [peftName(l, name, 'B'), db],
        ] as const;
      }),
    );
  return { merged, backward };
}

test('fresh adapters give the bits of the base; after a step the base and the reference policy keep theirs', () =>
  withGpu(async (gpu) => {
    const base = await new WgslEngine(gpu, loraModel(gpu, undefined), 64).logProbs(batch, options);
    const model = loraModel(gpu, LORA);
    const engine = new WgslEngine(gpu, model, 64);
    expect(await engine.logProbs(batch, options)).toEqual(base);
    await engine.forwardBackward(batch, loss, options);
    expect((await engine.optimizerStep(STEP)).skipped).toBe(false);
    expect((await engine.logProbs(batch, options)).logProbs).not.toEqual(base.logProbs);
    const before = gpu.counters.bytes;
    expect(await engine.referencePolicy().logProbs(batch, options)).toEqual(base);
    expect(gpu.counters.bytes).toBe(before);
    const weights = await model.weights.exportTensors();
    for (const [name, { data }] of initWeights(tinyConfig, 3)) expect(weights.get(name)!.data, name).toEqual(data);
    await expect(engine.referencePolicy().optimizerStep(STEP)).rejects.toThrow('The reference policy is frozen');
  }));

test('the log-prob at sampling is the trainer’s, bit for bit, with adapters', () =>
  withGpu(async (gpu) => {
    const model = loraModel(gpu, { ...LORA, dropout: 0.5 });
    await stir(model);
    const sizes = { maxNumSeqs: 4, slotCapacity: 20, maxPrompts: 2, maxPromptLength: 8, maxBatchedTokens: 16 };
    const rollout = new WgslRolloutEngine(gpu, model, sizes);
    const prompt = Uint32Array.of(4, 9, 33);
    const sampling = { temperature: 0.7, topK: 0, topP: 1, minP: 0, maxNewTokens: 12, stopTokenIds: [] };
    const samples = await Promise.all(
      [1, 2, 3].map(async (s) => {
        const request = {
          requestId: `${s}`,
          contextIds: prompt,
          promptLength: 3,
          key: [s, 0] as const,
          sampling,
        };
        const { tokenIds, logProbs } = await rollout.generate(request);
        return { tokens: tokenIds, mask: new Uint8Array(tokenIds.length).fill(1), logProbs };
      }),
    );
    const [{ batch: packed }] = packGroups([{ prompt, samples }], 4096);
    const { logProbs } = await new WgslEngine(gpu, model, 64).logProbs(packed, options);
    expect([...logProbs]).toEqual(samples.flatMap((sample) => [...sample.logProbs]));
  }));

test('dropout: the gradient is that of the masked loss, and every micro-batch has its own mask', () =>
  withGpu(async (gpu) => {
    const model = loraModel(gpu, { ...LORA, dropout: 0.3 });
    const start = await stir(model);
    const value = async () => {
      // A new engine starts its sequence of dropout masks again.
      const { logProbs, entropy } = await new WgslEngine(gpu, model, 64).forwardBackward(batch, loss, options);
      return logProbs.reduce((sum, p, e) => sum + p * loss.dLogProbs[e] + entropy[e] * loss.dEntropy[e], 0);
    };
    const engine = new WgslEngine(gpu, model, 64);
    const first = await engine.forwardBackward(batch, loss, options);
    const gradients = await engine.exportGradients();
    expect((await engine.forwardBackward(batch, loss, options)).logProbs).not.toEqual(first.logProbs);
    expect((await engine.logProbs(batch, options)).logProbs).not.toEqual(first.logProbs);
    const r = rng(12);
    let [slope, size] = [0, 0];
    const direction = new Map([...start].map(([name, { data }]) => [name, r.normals(data.length)]));
    for (const [name, { data }] of gradients) {
      slope += data.reduce((sum, g, i) => sum + g * direction.get(name)![i], 0);
      size += data.reduce((sum, g) => sum + g * g, 0);
    }
    const at = async (h: number) => {
      const moved = [...start].map(([name, { shape, data }]) => {
        const shifted = data.map((v, i) => v + h * direction.get(name)![i]);
        return [name, { shape, data: shifted }] as const;
      });
      model.lora!.weights.importTensors(new Map(moved));
      return value();
    };
    const h = 1e-3;
    const measured = ((await at(h)) - (await at(-h))) / (2 * h);
    // Central differences in float32: the loss has an error of about 1e-5, divided by 2 h.
    expect(Math.abs(measured - slope)).toBeLessThan(1e-2 * Math.sqrt(size) + 1e-2);
  }));

describe('gradient checkpointing', () => {
  const run = async (gpu: Gpu, lora: LoraConfig | undefined, options_: WgslEngineOptions) => {
    const config = { ...tinyConfig, numHiddenLayers: 4, architecture: 'Qwen3ForCausalLM' as const, qkNorm: true };
    const model = loraModel(gpu, lora, config);
    if (lora) await stir(model);
    const before = gpu.counters.bytes;
    const engine = new WgslEngine(gpu, model, 512, options_);
    const out = await engine.forwardBackward(batch, loss, options);
    const bytes = gpu.counters.bytes - before;
    return { out, gradients: await engine.exportGradients(), bytes };
  };
  test.each([
    ['every weight', undefined],
    ['adapters with dropout', { ...LORA, dropout: 0.3 }],
  ])('%s: the same bits, less memory', (_, lora) =>
    withGpu(async (gpu) => {
      const kept = await run(gpu, lora, {});
      const again = await run(gpu, lora, { enableGradientCheckpointing: true });
      expect(again.out).toEqual(kept.out);
      expect(again.gradients).toEqual(kept.gradients);
      expect(again.bytes / kept.bytes).toBeLessThan(0.62);
    }),
  );
});

test('the base has no gradient and no moments: an update takes memory for the adapters alone', () =>
  withGpu(async (gpu) => {
    const config = { ...tinyConfig, hiddenSize: 96, intermediateSize: 256, vocabSize: 500 };
    const grown = async (lora: LoraConfig | undefined) => {
      const model = loraModel(gpu, lora, config);
      const engine = new WgslEngine(gpu, model, 64);
      await engine.logProbs(batch, options); // allocates the workspace
      const before = gpu.counters.bytes;
      await engine.forwardBackward(batch, loss, options);
      await engine.optimizerStep(STEP);
      const adapters = (model.lora?.weights.elements ?? 0) * 4;
      return { bytes: gpu.counters.bytes - before, weights: model.weights.elements * 4, adapters };
    };
    const full = await grown(undefined);
    expect(full.bytes).toBeGreaterThanOrEqual(3 * full.weights);
    const adapted = await grown(LORA);
    expect(adapted.bytes).toBeLessThan(3 * adapted.adapters + 16384); // norms, clip, read-back
    expect(adapted.bytes).toBeLessThan(full.bytes / 5);
  }));

test('adapters, gradients and moments are exported and imported under PEFT names', async () => {
  const gpu = await testGpu();
  const [one, two] = [loraModel(gpu, LORA), loraModel(gpu, { ...LORA, seed: 9 })];
  const [from, to] = [new WgslEngine(gpu, one, 64), new WgslEngine(gpu, two, 64)];
  await from.forwardBackward(batch, loss, options);
  await from.optimizerStep(STEP);
  await to.importWeights(await from.exportWeights());
  await to.importOptimizer(await from.exportOptimizer());
  for (const engine of [from, to]) {
    await engine.forwardBackward(batch, loss, options);
    await engine.optimizerStep(STEP);
  }
  expect(await to.exportWeights()).toEqual(await from.exportWeights());
  const names = [...(await from.exportOptimizer()).keys()];
  expect(names).toContain('base_model.model.model.layers.1.mlp.up_proj.lora_B.weight.exp_avg_sq');
});
