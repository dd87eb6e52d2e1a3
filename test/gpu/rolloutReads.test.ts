/** Tests reading sampled tokens: few tokens are read together with the flags, many by a separate read, with the same results. */
import { expect, test, vi } from 'vitest';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { testGpu, withGpu } from './gpu.ts';
import { request, run, runFreeing, SIZES } from './rolloutCases.ts';
import { tinyModel } from './tinyModel.ts';

/** Slots with 3 words per token, so that the sampled tokens of 16 slots take over half a MiB. */
const MUCH = { ...SIZES, slotCapacity: 3000 };

const requests = [0, 1, 2, 3].flatMap((prompt) => [0, 1, 2].map((sample) => request(prompt, sample)));
const inTwoTurns = requests.map((q) => ({
  ...q,
  requestId: `${q.requestId} again`,
  key: [q.key[0], 91] as typeof q.key,
}));

test('tokens, log-probs and kept mass do not depend on how they are read', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = tinyModel(gpu);
    const [little, much] = [SIZES, MUCH].map((sizes) => new WgslRolloutEngine(gpu, model, sizes));
    expect(await run(little, requests)).toEqual(await run(much, requests));
    // Slots change their sequence while others sample, and some requests need details, such as entropies, which are read from the device.
    const mixed = inTwoTurns.map((q, i) =>
      i % 3 === 1 ? { ...q, sampling: { ...q.sampling, entropy: true, topLogprobs: 2 } } : q,
    );
    expect(await runFreeing(little, mixed)).toEqual(await runFreeing(much, mixed));
  }));

test('a request that ends in its first pass is answered after one read', () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const model = tinyModel(gpu);
    const mapAsync = vi.spyOn(GPUBuffer.prototype, 'mapAsync');
    const readsOf = async (sizes: typeof SIZES) => {
      const engine = new WgslRolloutEngine(gpu, model, sizes);
      mapAsync.mockClear();
      const { tokenIds } = await engine.generate(request(1, 0, { maxNewTokens: 1 }));
      return { tokenIds, reads: mapAsync.mock.calls.length };
    };
    const [little, much] = [await readsOf(SIZES), await readsOf(MUCH)];
    mapAsync.mockRestore();
    expect([little.reads, much.reads]).toEqual([1, 2]);
    expect(little.tokenIds).toEqual(much.tokenIds);
  }));
