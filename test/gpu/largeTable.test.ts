/**
 * Tests that an LM head that reads the embedding table directly gives the same bits as one that reads a transposed copy, with less memory.
 */
import { expect, test } from 'vitest';
import { Gpu } from '../../src/gpu/device.ts';
import { PlannedGpu } from '../../src/gpu/plannedGpu.ts';
import { Head } from '../../src/model/head.ts';
import { allocateModel, createModel } from '../../src/model/llama.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { rng } from '../random.ts';
import { tinyConfig } from './tinyModel.ts';

const adam = { lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.1, gradClip: 1 };

/** Returns log-probs, the tokens sampled before and after an update, the weights after it, and the bytes allocated. */
async function run(config: typeof tinyConfig, maxArenaBytes: number, headCopyBytes?: number) {
  const gpu = await Gpu.create({ maxArenaBytes });
  const model = createModel(gpu, config, 64);
  if (headCopyBytes !== undefined) model.headCopyBytes = headCopyBytes;
  model.weights.importTensors(initWeights(config, 3));
  const engine = new WgslEngine(gpu, model, 64);
  const r = rng(5);
  const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(r.uniform() * config.vocabSize));
  const samples = [{ tokens: ids(20), mask: new Uint8Array(20).fill(1) }];
  const [{ batch }] = packGroups([{ prompt: ids(5), samples }], 64);
  const sizes = { maxNumSeqs: 2, slotCapacity: 16, maxPrompts: 2, maxPromptLength: 16, maxBatchedTokens: 64 };
  const rollout = new WgslRolloutEngine(gpu, model, sizes);
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 8, stopTokenIds: [] };
  const prompt = { contextIds: ids(4), promptLength: 4, key: [1, 1] as const, sampling };
  const first = await rollout.generate({ ...prompt, requestId: 'a' });
  const dLogProbs = Float32Array.from(r.normals(20));
  const { logProbs } = await engine.forwardBackward(batch, { kind: 'coefficients', dLogProbs }, { temperature: 0.7 });
  await engine.optimizerStep(adam);
  void rollout.resetCache();
  const second = await rollout.generate({ ...prompt, requestId: 'b' });
  const weights = await engine.exportWeights();
  const bytes = gpu.counters.bytes;
  gpu.destroy();
  return { out: { first, logProbs, second, weights }, bytes };
}

test.each([
  ['one table, tied', {}, Infinity],
  ['a head of its own', { tieWordEmbeddings: false }, Infinity],
  ['a table in chunks', {}, 2 * 64 * 20 * 4],
])('%s: the same bits, two copies less', async (_, change, maxArenaBytes) => {
  const config = { ...tinyConfig, ...change, vocabSize: 300 };
  const copied = await run(config, maxArenaBytes);
  const direct = await run(config, maxArenaBytes, 0);
  expect(direct.out).toEqual(copied.out);
  expect(copied.bytes - direct.bytes).toBe(2 * config.vocabSize * config.hiddenSize * 4);
});

test('only tables of up to 64 MiB are kept transposed', () => {
  const bytes = (vocabSize: number) => {
    const gpu = new PlannedGpu();
    const model = allocateModel(gpu, { ...tinyConfig, vocabSize, hiddenSize: 512 }, 1);
    const before = gpu.counters.bytes;
    new Head(gpu, model, 1, false, true);
    return gpu.counters.bytes - before;
  };
  const perToken = (from: number, to: number) => (bytes(to) - bytes(from)) / (to - from);
  expect(perToken(8192, 32768)).toBe(4 + 512 * 4);
  expect(perToken(32769, 65536)).toBe(4);
});
