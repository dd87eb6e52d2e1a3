import { expect, test } from 'vitest';
import { addInto } from '../../src/gpu/ops/add_into.ts';
import { rng } from '../random.ts';
import { withGpu } from './gpu.ts';

// 4194304 elements need one workgroup more than the 65535 of a single grid dimension.
test.each([1, 63, 64, 65, 4194304])('y += x over %i values changes nothing behind them', (n) =>
  withGpu(async (gpu) => {
    const r = rng(n);
    const [x, y] =
      n > 1000
        ? [new Float32Array(n + 3).fill(0.25), new Float32Array(n + 3).fill(1)]
        : [r.normals(n + 3), r.normals(n + 3)];
    const [xs, ys] = [gpu.buffer('x', x), gpu.buffer('y', y)];
    addInto(gpu, { x: xs, y: ys, n });
    const got = await gpu.readF32(ys);
    const wrong = got.findIndex((v, i) => v !== (i < n ? Math.fround(x[i] + y[i]) : y[i]));
    expect(wrong).toBe(-1);
  }),
);
