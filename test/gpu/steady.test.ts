/**
 * Tests that a steady step allocates nothing: no buffer, pipeline or bind group, and one submit per read-back in addition to the uploads.
 */
import { expect, test, vi } from 'vitest';
import { MATMUL_TILES } from '../../kernels/tiles.ts';
import type { Gpu, GpuCounters } from '../../src/gpu/device.ts';
import { chooseMatmul, isGated } from '../../src/gpu/ops/matmul.ts';
import type { PackedBatch, PolicyLossInputs } from '../../src/model/engine.ts';
import { countDispatches, dispatchesOn } from '../../src/extensions/limits/work.ts';
import { prepareKernels } from '../../src/model/kernels/prepare.ts';
import { Arena } from '../../src/model/weights/arena.ts';
import type { OptimizerSpec } from '../../src/model/optimizer/spec.ts';
import { packGroups } from '../../src/model/packing.ts';
import { WgslEngine } from '../../src/model/wgslEngine.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { recipeSpec } from '../recipeSpec.ts';
import { testGpu, withGpu } from './gpu.ts';
import { tinyConfig, tinyModel } from './tinyModel.ts';
import { stub } from '../stub.ts';

const ids = (n: number, seed: number) =>
  Uint32Array.from({ length: n }, (_, i) => (i * 17 + seed * 29) % tinyConfig.vocabSize);

/** Returns the changes of the counters while `work` runs. */
async function added(gpu: Gpu, work: () => Promise<unknown>): Promise<GpuCounters> {
  const before = { ...gpu.counters };
  await work();
  const names = Object.keys(before) as (keyof GpuCounters)[];
  return stub<GpuCounters>(Object.fromEntries(names.map((name) => [name, gpu.counters[name] - before[name]])));
}

const NOTHING = { buffers: 0, bytes: 0, stagingBytes: 0, copiedBytes: 0, pipelines: 0, bindGroups: 0 };

function batchOf(responses: number[]): PackedBatch {
  const samples = responses.map((n, s) => ({ tokens: ids(n, s + 2), mask: new Uint8Array(n).fill(1) }));
  return packGroups([{ prompt: ids(6, 1), samples }], 64)[0].batch;
}

const LOSS = recipeSpec('grpo', { clipRatioHigh: 0.28, entropyCoeff: 0.01 });
const ADAMW = { lr: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.01, gradClip: 1 };

test.each<OptimizerSpec>([
  { name: 'AdamW' },
  { name: 'SignSGD' },
  { name: 'SGD', momentum: 0.9, nesterov: true },
  { name: 'Muon', momentum: 0.95, nesterov: true, adjustLrFn: 'original' },
])('a second training step by $name creates nothing, and maps back only what it returns', (optimizer) =>
  withGpu(async () => {
    const gpu = await testGpu();
    await prepareKernels(gpu, tinyConfig, { rollout: false }); // a smaller batch uses smaller tiles
    const engine = new WgslEngine(gpu, tinyModel(gpu), 64, { optimizer });
    const step = async (batch: PackedBatch) => {
      const ones = new Float32Array(batch.targets.length).fill(1);
      const inputs: PolicyLossInputs = { oldLogProbs: ones, advantages: ones, weights: ones, klWeights: ones };
      await engine.forwardBackward(batch, { kind: 'policy', spec: LOSS, inputs }, { temperature: 1 });
      await engine.optimizerStep(ADAMW);
    };
    await step(batchOf([9, 12, 5])); // the largest first, as in a run that grows later
    for (const responses of [
      [9, 12, 5],
      [4, 7],
    ]) {
      const batch = batchOf(responses);
      const { dispatches, submits, mappedBytes, ...made } = await added(gpu, () => step(batch));
      expect(made).toEqual(NOTHING);
      expect(dispatches).toBeGreaterThan(30);
      // All uploads precede the recorded work. The forward pass, the log-probs and the gradient norm then need one submit each.
      expect(submits).toBe(3);
      expect(mappedBytes).toBe(batch.targets.length * 2 * 4 + 3 * 4);
    }
  }),
);

test('a second generation creates nothing, and submits once a chunk of steps', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const sizes = { maxNumSeqs: 8, slotCapacity: 24, maxPrompts: 4, maxPromptLength: 16, maxBatchedTokens: 64 };
    const engine = new WgslRolloutEngine(gpu, tinyModel(gpu), sizes);
    const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 20, stopTokenIds: [] };
    const prompts = [ids(7, 1), ids(11, 2)];
    const generate = async () => {
      const requests = [0, 1, 2, 3, 4, 5].map((s) => {
        const contextIds = prompts[s % 2];
        const key: [number, number] = [3, s];
        return { requestId: `${s}`, contextIds, promptLength: contextIds.length, key, sampling };
      });
      await Promise.all(requests.map((request) => engine.generate(request)));
      for (const { requestId } of requests) engine.release(requestId);
      await engine.resetCache();
    };
    await generate();
    await engine.takeStats();
    const { submits, dispatches, mappedBytes, ...made } = await added(gpu, generate);
    const { decodeSteps } = await engine.takeStats();
    expect(made).toEqual(NOTHING);
    expect(decodeSteps).toBeGreaterThan(18);
    expect(dispatches).toBeGreaterThan(decodeSteps * 10);
    expect(submits).toBeLessThanOrEqual(decodeSteps + 2);
    expect(mappedBytes).toBeGreaterThan(6 * 20 * 12);
  }));

test('without a backward pass SwiGLU is part of its product: a kernel a layer less, the same bits', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    await prepareKernels(gpu, tinyConfig, { rollout: false });
    const engine = new WgslEngine(gpu, tinyModel(gpu), 64);
    const batch = batchOf([9, 12, 5]);
    const logProbs = async () => [...(await engine.logProbs(batch, { temperature: 1 })).logProbs];
    const run = async () => {
      let found: number[] = [];
      const { dispatches } = await added(gpu, async () => (found = await logProbs()));
      return { found, dispatches };
    };
    const inOne = await run();
    const apart = vi.spyOn(Arena.prototype, 'gatedProduct').mockReturnValue(false);
    const inTwo = await run().finally(() => apart.mockRestore());
    expect(inOne.found).toEqual(inTwo.found);
    const gated = isGated(MATMUL_TILES[chooseMatmul(gpu, batch.tokens.length, 2 * tinyConfig.intermediateSize)]);
    expect(inTwo.dispatches - inOne.dispatches).toBe(gated ? tinyConfig.numHiddenLayers : 0);
  }));

test('the dispatches of a step that are counted without a device are those of the device', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    await prepareKernels(gpu, tinyConfig, { rollout: true });
    const rollout = { maxNumSeqs: 8, slotCapacity: 24, maxPrompts: 4, maxPromptLength: 16, maxBatchedTokens: 64 };
    const sizes = { config: tinyConfig, maxTokenLen: 64, maxPositions: 40, rollout };
    const counted = await countDispatches(sizes, gpu.adapter);
    expect(counted).toEqual(await dispatchesOn(gpu, tinyModel(gpu), sizes));
    expect(counted.decodeStep).toBeGreaterThan(5 * tinyConfig.numHiddenLayers);
    await gpu.idle();
  }));
