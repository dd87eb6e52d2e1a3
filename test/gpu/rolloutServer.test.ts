/**
 * Runs a long stream of requests through the engine: memory does not grow, and no slot is lost. How many slots are used is tested in
 * test/unit/rolloutServer.test.ts.
 */
import { expect, test } from 'vitest';
import { prepareKernels } from '../../src/model/kernels/prepare.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import type { GenerateRequest } from '../../src/rollout/types.ts';
import { isFull } from './full.ts';
import { testGpu, withGpu } from './gpu.ts';
import { request } from './rolloutCases.ts';
import { tinyConfig, tinyModel } from './tinyModel.ts';

/** Keeps `at` requests in flight until all requests are answered. Calls `after` with the number answered so far. */
async function stream(
  engine: WgslRolloutEngine,
  count: number,
  at: number,
  make: (i: number) => GenerateRequest,
  after: (answered: number) => void | Promise<void> = () => {},
): Promise<number> {
  let [next, answered, tokens] = [0, 0, 0];
  const client = async () => {
    while (next < count) {
      const q = make(next++);
      const { tokenIds } = await engine.generate(q);
      tokens += tokenIds.length;
      engine.release(q.requestId);
      await after(++answered);
    }
  };
  await Promise.all(Array.from({ length: at }, client));
  return tokens;
}

const REQUESTS = isFull ? 10_000 : 1000;
test(`after ${REQUESTS} short requests every slot is free, and memory has not grown`, () =>
  withGpu(async () => {
    const gpu = await testGpu();
    const sizes = { maxNumSeqs: 64, slotCapacity: 8, maxPrompts: 8, maxPromptLength: 20, maxBatchedTokens: 512 };
    const model = tinyModel(gpu, { numHiddenLayers: 1 });
    await prepareKernels(gpu, tinyConfig, { rollout: true }); // fewer rows use smaller tiles
    const engine = new WgslRolloutEngine(gpu, model, sizes);
    const make = (i: number): GenerateRequest => ({
      ...request(i % 4, i, { maxNewTokens: 1 + (i % 4), stopTokenIds: [7, 9, 11] }),
      requestId: `${i}`,
    });
    await stream(engine, 500, 128, make);
    const { bytes, stagingBytes, pipelines, bindGroups } = gpu.counters;
    await engine.takeStats();
    let resets = 0;
    const tokens = await stream(engine, REQUESTS, 128, make, (answered) => {
      if (answered % (REQUESTS / 4) !== 0) return;
      resets++;
      return engine.resetCache(); // simulates an update, while requests are in flight
    });
    expect(resets).toBe(4);
    const after = gpu.counters;
    expect(after).toMatchObject({ pipelines, bindGroups });
    expect(after.bytes - after.stagingBytes).toBe(bytes - stagingBytes);
    // The number of overlapping read-backs depends on how busy the host is, so one more read-back buffer is allowed.
    expect(after.stagingBytes).toBeLessThanOrEqual(2 * stagingBytes);
    const { generatedTokens } = await engine.takeStats();
    expect(generatedTokens).toBe(tokens);
    // Fill all 64 slots at the same time, twice: no slot was lost, and none is counted twice.
    for (let round = 0; round < 2; round++) {
      const full = Array.from({ length: 64 }, (_, i) => ({ ...make(i), requestId: `full.${i}` }));
      await Promise.all(full.map((q) => engine.generate(q)));
      for (const { requestId } of full) engine.release(requestId);
    }
  }));
