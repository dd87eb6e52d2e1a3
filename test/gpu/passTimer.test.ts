/** Tests that passes are timed by label if the adapter has timestamps, and that timing does not change the results. */
import { expect, test } from 'vitest';
import { Gpu } from '../../src/gpu/device.ts';
import { addInto } from '../../src/gpu/ops/add_into.ts';
import { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import { withGpu } from './gpu.ts';
import { prompts, request, run, SIZES } from './rolloutCases.ts';
import { tinyModel } from './tinyModel.ts';

test('only labelled passes since the last read are timed, and the data is what read gives', () =>
  withGpu(async () => {
    const gpu = await Gpu.create();
    const n = 1 << 16;
    const [x, y] = [new Float32Array(n).fill(2), new Float32Array(n).fill(1)].map((data) => gpu.buffer('v', data));
    const read = async () => {
      const {
        data: [data],
        times,
      } = await gpu.readTimed(y);
      return { first: new Float32Array(data)[0], times };
    };
    addInto(gpu, { x, y, n });
    expect(await read()).toEqual({ first: 3, times: undefined });
    const offered = gpu.startTimer();
    expect(offered).toBe(gpu.adapter.features.includes('timestamp-query'));
    if (offered) {
      const start = performance.now();
      gpu.timeAs('a');
      addInto(gpu, { x, y, n });
      gpu.timeAs(undefined);
      addInto(gpu, { x, y, n });
      const timed = await read();
      expect(timed.first).toBe(7);
      expect(Object.keys(timed.times!)).toEqual(['a']);
      // A GPU clock can be coarse but never runs backwards. The time of the pass is less than the wall time measured around it.
      expect(timed.times!['a']).toBeGreaterThanOrEqual(0);
      expect(timed.times!['a']).toBeLessThan(performance.now() - start + 1);
      expect((await read()).times).toEqual({});
    }
    gpu.stopTimer();
    expect((await read()).times).toBeUndefined();
    gpu.destroy();
  }));

test('labelled passes beyond the limit are skipped; a sum over many stays finite', () =>
  withGpu(async () => {
    const gpu = await Gpu.create();
    if (gpu.startTimer()) {
      const [x, y] = [gpu.buffer('x', new Float32Array(4).fill(1)), gpu.buffer('y', new Float32Array(4))];
      for (let i = 0; i < 300; i++) {
        gpu.timeAs(i % 2 ? 'odd' : 'even');
        addInto(gpu, { x, y, n: 4 });
      }
      const {
        data: [data],
        times,
      } = await gpu.readTimed(y);
      expect(new Float32Array(data)[0]).toBe(300);
      expect(Object.keys(times!).sort()).toEqual(['even', 'odd']);
    }
    gpu.destroy();
  }));

test('a rollout with timestamps has the same tokens, and reports the GPU’s time of prefill, decode and sampling', () =>
  withGpu(async () => {
    const gpu = await Gpu.create();
    const model = tinyModel(gpu);
    const requests = prompts.flatMap((_, p) => [0, 1].map((s) => ({ ...request(p, s), timed: true })));
    const plain = await run(new WgslRolloutEngine(gpu, model, SIZES), requests);
    const offered = gpu.startTimer();
    const timed = await run(new WgslRolloutEngine(gpu, model, SIZES), requests);
    for (const [id, { spans, ...generation }] of timed) {
      const { spans: plainSpans, ...same } = plain.get(id)!;
      expect(generation).toEqual(same);
      const parts = (of: typeof spans) => of!.map(({ kind }) => kind);
      expect(parts(plainSpans)).toEqual(['queue', 'prefill', 'decode']);
      expect(parts(spans)).toEqual(['queue', 'prefill', 'decode', ...(offered ? ['sample'] : [])]);
      expect(plainSpans!.every(({ gpuMs }) => gpuMs === undefined)).toBe(true);
      const busy = spans!.filter(({ kind }) => kind !== 'queue');
      expect(busy.every(({ gpuMs }) => (gpuMs !== undefined) === offered)).toBe(true);
      for (const { gpuMs = 0, start, end } of busy) expect(gpuMs).toBeLessThan(end - start + 50);
    }
    gpu.destroy();
  }));
