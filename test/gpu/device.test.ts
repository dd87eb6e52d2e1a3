import { describe, expect, test } from 'vitest';
import { Gpu } from '../../src/gpu/device.ts';
import { DeviceLostError, GpuError, OutOfMemoryError } from '../../src/errors.ts';
import { columnSum, columnSumKernel } from '../../src/gpu/ops/column_sum.ts';
import { rmsnorm } from '../../src/gpu/ops/rmsnorm.ts';
import { withGpu } from './gpu.ts';

/** Creates a separate device, for a test that loses the device or lowers its limits. */
async function own(options: { maxBytes?: number } = {}): Promise<Gpu> {
  return Gpu.create(options);
}

describe('recording', () => {
  test('more dispatches than the params ring holds still read their own params', () =>
    withGpu(async (gpu) => {
      const x = gpu.buffer('x', new Float32Array([3, 4]));
      const weight = gpu.buffer('weight', new Float32Array([1, 1]));
      const y = gpu.buffer('y', 8);
      const rstd = [gpu.buffer('first', 4), gpu.buffer('middle', 4), gpu.buffer('last', 4)];
      const before = gpu.counters.submits;
      for (let i = 0; i <= 5000; i++) {
        const out = i === 0 ? rstd[0] : i === 5000 ? rstd[2] : rstd[1];
        rmsnorm(gpu, { x, weight, y, rstd: out, N: 1, C: 2, eps: i });
      }
      expect(gpu.counters.submits).toBe(before + 1); // 4096 fit; one more submits them
      for (const [view, eps] of [
        [rstd[0], 0],
        [rstd[1], 4999],
        [rstd[2], 5000],
      ] as const)
        expect((await gpu.readF32(view))[0]).toBeCloseTo(1 / Math.sqrt(12.5 + eps), 6);
    }));

  test('writes, copies, clears and dispatches take effect in the order they are given', () =>
    withGpu(async (gpu) => {
      const x = gpu.buffer('x', Float32Array.of(1, 2, 3));
      const [y, z] = [gpu.buffer('y', 12), gpu.buffer('z', 12)];
      columnSum(gpu, { x, y, N: 1, C: 3 }); // y = x
      gpu.write(x, Float32Array.of(10), 1); // the sum above must have read 2
      columnSum(gpu, { x, y, N: 1, C: 3 });
      gpu.copy(y, z);
      gpu.clear(y);
      columnSum(gpu, { x, y, N: 1, C: 3 });
      expect([...(await gpu.readF32(z))]).toEqual([2, 12, 6]);
      expect([...(await gpu.readF32(y))]).toEqual([1, 10, 3]);
    }));

  test('parts of several buffers are read at once, empty ones too', () =>
    withGpu(async (gpu) => {
      const view = gpu.buffer('x', Float32Array.of(1, 2, 3, 4));
      const parts = [
        { view, offset: 4, bytes: 8 },
        { view, offset: 0, bytes: 0 },
        { view, offset: 12, bytes: 4 },
      ];
      const [a, b, c] = await gpu.readRanges(parts);
      expect([...new Float32Array(a)]).toEqual([2, 3]);
      expect(b.byteLength).toBe(0);
      expect([...new Float32Array(c)]).toEqual([4]);
    }));

  test('two reads in flight do not mix', () =>
    withGpu(async (gpu) => {
      const views = [1, 2, 3].map((x) => gpu.buffer('x', Float32Array.of(x)));
      const results = await Promise.all(views.map((view) => gpu.readF32(view)));
      expect(results.map(([x]) => x)).toEqual([1, 2, 3]);
    }));

  test('a pipeline compiled ahead is the one that a dispatch uses', () =>
    withGpu(async (gpu) => {
      const overrides = { WG: 2 };
      await gpu.prepare(columnSumKernel, overrides);
      const { pipelines } = gpu.counters;
      await gpu.prepare(columnSumKernel, overrides);
      const views = { x: gpu.buffer('x', Float32Array.of(1, 2, 3)), y: gpu.buffer('y', 12) };
      gpu.dispatch(columnSumKernel, views, { N: 1, C: 3 }, 2, overrides);
      expect([...(await gpu.readF32(views.y))]).toEqual([1, 2, 3]);
      expect(gpu.counters.pipelines).toBe(pipelines);
    }));
});

describe('memory', () => {
  test('a buffer over the device limit is refused with both numbers', () =>
    withGpu((gpu) => {
      const { maxStorageBufferBindingSize, maxBufferSize } = gpu.device.limits;
      const limit = Math.floor(Math.min(maxStorageBufferBindingSize, maxBufferSize) / 256) * 256; // offsets are multiples of 256
      const bytes = limit + 4;
      expect(() => gpu.buffer('logits', bytes)).toThrow(
        `Buffer "logits" needs ${bytes} bytes but this device binds at most ${limit}. Split the tensor or shrink the batch.`,
      );
    }));

  test('a cap refuses what does not fit, names the numbers, and counts what is freed', async () => {
    const gpu = await own({ maxBytes: 1000 });
    const first = gpu.buffer('weights', 600);
    expect(() => gpu.buffer('kv', 404)).toThrow(OutOfMemoryError);
    expect(() => gpu.buffer('kv', 404)).toThrow(
      'Buffer "kv" needs 404 bytes but 600 of the 1000 bytes allowed are in use. Lower actor.ppoMaxTokenLenPerGpu or rollout.maxNumSeqs.',
    );
    gpu.buffer('small', 400);
    gpu.free(first);
    expect(gpu.counters).toMatchObject({ buffers: 1, bytes: 400 });
    gpu.buffer('kv', 600);
    gpu.destroy();
  });

  test('sizes are rounded up to whole values, never to nothing', () =>
    withGpu((gpu) => {
      expect([0, 1, 4, 5].map((n) => gpu.buffer('x', n).bytes)).toEqual([4, 4, 4, 8]);
    }));

  test('slices and writes that do not fit are refused with the numbers', () =>
    withGpu((gpu) => {
      const view = gpu.buffer('arena', 1024);
      expect(() => gpu.slice(view, 128, 4)).toThrow(
        'A slice of "arena" at 128 of 4 bytes must start at a multiple of 256 and end by 1024.',
      );
      expect(() => gpu.slice(view, 768, 260)).toThrow('A slice of "arena" at 768 of 260 bytes');
      const part = gpu.slice(gpu.slice(view, 256, 512), 256, 8);
      expect([part.offset, part.bytes]).toEqual([512, 8]);
      expect(() => gpu.write(part, new Float32Array(2), 1)).toThrow(
        'Writing 8 bytes at 4 into "arena", which holds 8.',
      );
    }));

  test('the cached bind groups no longer contain a freed buffer', () =>
    withGpu(async (gpu) => {
      const y = gpu.buffer('y', 4);
      const add = (value: number) => {
        const x = gpu.buffer('x', Float32Array.of(value));
        columnSum(gpu, { x, y, N: 1, C: 1 });
        gpu.free(x);
      };
      add(2);
      add(3);
      const kept = gpu.buffer('x', Float32Array.of(4));
      columnSum(gpu, { x: kept, y, N: 1, C: 1 });
      const { bindGroups } = gpu.counters;
      gpu.free(gpu.buffer('other', 4)); // any bind group may have contained it
      columnSum(gpu, { x: kept, y, N: 1, C: 1 });
      expect(gpu.counters.bindGroups).toBe(bindGroups + 1);
      expect([...(await gpu.readF32(y))]).toEqual([13]);
    }));
});

describe('faults', () => {
  test('a lost device is a DeviceLostError, for reads in flight and for everything after', async () => {
    const gpu = await own();
    const x = gpu.buffer('x', 1 << 20);
    const pending = gpu.read(x);
    gpu.device.destroy();
    // The read-back either finished before the loss of the device, or rejects with it. It must not hang.
    await pending.then(
      ([bytes]) => expect(bytes.byteLength).toBe(1 << 20),
      (error: unknown) => expect(String(error)).toMatch(/lost|destroyed|Abort/i),
    );
    await gpu.device.lost;
    await expect(gpu.read(x)).rejects.toThrow(DeviceLostError);
    await expect(gpu.idle()).rejects.toThrow(DeviceLostError);
    expect(() => gpu.flush()).toThrow(DeviceLostError);
    expect(() => columnSum(gpu, { x, y: x, N: 1, C: 1 })).toThrow(
      /^GPU device lost \("destroyed": .*\)\. Its memory is lost\. Create a new engine and resume from a checkpoint\.$/,
    );
    const again = await own(); // a new device is available
    expect([...(await again.readF32(again.buffer('x', Float32Array.of(7))))]).toEqual([7]);
    again.destroy();
  });

  test('a late error of WebGPU is thrown by a later call, and by all after it', async () => {
    const gpu = await own();
    const [x, y] = [gpu.buffer('x', 16), gpu.buffer('y', 16)];
    const reported = new Promise((resolve) => gpu.device.addEventListener('uncapturederror', resolve, { once: true }));
    gpu.copy(x, y, 8, 0, 1024); // past the end of y
    gpu.flush();
    await reported;
    expect(() => gpu.flush()).toThrow(GpuError);
    await expect(gpu.read(x)).rejects.toThrow(GpuError);
    gpu.destroy();
  });
});
