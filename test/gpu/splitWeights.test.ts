/** Tests that a model whose weights are in several buffers, because the device cannot bind all of them at once, gives the same results. */
import { describe, expect, test } from 'vitest';
import { Gpu } from '../../src/gpu/device.ts';
import { filesOf, saveCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import { loadModel } from '../../src/model/weights/load.ts';
import type { LoraConfig } from '../../src/model/lora/weights.ts';
import { openCheckpoint } from '../../src/model/checkpoint/open.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { planBlocks } from '../../src/model/weights/plan.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { rng } from '../random.ts';
import { loraOf, tinyConfig } from './tinyModel.ts';

/** Largest binding in bytes: 128 rows of the embedding table. A layer's largest matrix takes 4480 bytes. */
const LIMIT = 2 * 64 * 20 * 4;
const lora = loraOf(8);
const QWEN2 = { architecture: 'Qwen2ForCausalLM', tieWordEmbeddings: false, qkvBias: true } as const;
const adam = { lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.1, gradClip: 1 };

/** Updates the model twice and returns its results. */
async function train(options: { maxArenaBytes?: number }, config: typeof tinyConfig, adapters?: LoraConfig) {
  const gpu = await Gpu.create(options);
  const files = saveCheckpoint({ config, weights: initWeights(config, 3) });
  const { weights } = await openCheckpoint(filesOf((path) => Promise.resolve(files.get(path))));
  const model = await loadModel(gpu, config, 64, weights, { lora: adapters });
  const engine = new WgslEngine(gpu, model, 64);
  const r = rng(5);
  const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(r.uniform() * config.vocabSize));
  const samples = [{ tokens: ids(20), mask: new Uint8Array(20).fill(1) }];
  const [{ batch }] = packGroups([{ prompt: ids(5), samples }], 64);
  const first = await engine.logProbs(batch, { temperature: 0.7 });
  const norms: number[] = [];
  for (let step = 0; step < 2; step++) {
    const dLogProbs = Float32Array.from(r.normals(20));
    await engine.forwardBackward(batch, { kind: 'coefficients', dLogProbs }, { temperature: 0.7 });
    norms.push((await engine.optimizerStep(adam)).gradNorm);
  }
  const rollout = new WgslRolloutEngine(gpu, model, {
    maxNumSeqs: 2,
    slotCapacity: 16,
    maxPrompts: 2,
    maxPromptLength: 16,
    maxBatchedTokens: 64,
  });
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 8, stopTokenIds: [] };
  const key: [number, number] = [1, 1];
  const drawn = await rollout.generate({ requestId: 'a', contextIds: ids(4), promptLength: 4, key, sampling });
  const moments = await engine.exportOptimizer();
  await engine.importOptimizer(moments);
  expect(await engine.exportOptimizer()).toEqual(moments);
  const out = { first, norms, drawn, base: await model.weights.exportTensors(), trained: await engine.exportWeights() };
  const buffers = (adapters ? model.lora! : model).weights.buffers.length;
  gpu.destroy();
  return { ...out, buffers };
}

describe.each([
  ['every weight, tied head', {}, undefined],
  ['every weight, head of its own, biases', QWEN2, undefined],
  ['adapters', {}, lora],
] as const)('%s', (_, change, adapters) => {
  test('the same bits forward, the same updates up to rounding, the same tokens', async () => {
    const config = { ...tinyConfig, ...change, vocabSize: 300 };
    const one = await train({}, config, adapters);
    const many = await train({ maxArenaBytes: LIMIT }, config, adapters);
    expect([one.buffers, many.buffers > 1]).toEqual([1, true]);
    expect(many.first).toEqual(one.first);
    expect(many.drawn.tokenIds).toEqual(one.drawn.tokenIds);
    many.norms.forEach((norm, i) => expect(norm / one.norms[i]).toBeCloseTo(1, 5));
    expect([...many.trained.keys()]).toEqual([...one.trained.keys()]);
    for (const [name, { data }] of many.trained)
      data.forEach((v, i) => expect(Math.abs(v - one.trained.get(name)!.data[i]), name).toBeLessThan(1e-3));
    if (adapters) expect(many.base).toEqual(one.base);
  });
});

test('no buffer of the plan is larger than asked, and only the tables are cut', () => {
  const config = { ...tinyConfig, vocabSize: 300 };
  const { blocks, buffers } = planBlocks(config, LIMIT);
  expect(Math.max(...buffers)).toBeLessThanOrEqual(LIMIT);
  expect(blocks.filter(({ parts }) => parts[0].rows).map(({ label }) => label)).toEqual([
    'embed.0',
    'embed.1',
    'embed.2',
  ]);
  expect(planBlocks(config).buffers).toHaveLength(1);
});

test('a matrix beyond the limit is refused by name', () => {
  expect(() => planBlocks({ ...tinyConfig, intermediateSize: 40 }, 6400)).not.toThrow();
  expect(() => planBlocks({ ...tinyConfig, intermediateSize: 40 }, 6144)).toThrow(
    'The weights "0.wgu" take 6400 bytes, but this device binds at most 6144. Use a smaller model or another device.',
  );
});
