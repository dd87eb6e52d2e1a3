import { expect, test } from 'vitest';
import { addInto } from '../../src/gpu/ops/add_into.ts';
import { rng } from '../random.ts';
import { FOLD_THREADS, oneThreadGroups } from './check.ts';
import { withGpu } from './gpu.ts';

test.each([1, 63, 64, 65, FOLD_THREADS])('y += x over %i values changes nothing behind them', (n) =>
  withGpu(async (gpu) => {
    const r = rng(n);
    const [x, y] = [r.normals(n + 3), r.normals(n + 3)];
    const [xs, ys] = [gpu.buffer('x', x), gpu.buffer('y', y)];
    addInto(n === FOLD_THREADS ? oneThreadGroups(gpu) : gpu, { x: xs, y: ys, n });
    const got = await gpu.readF32(ys);
    const wrong = got.findIndex((v, i) => v !== (i < n ? Math.fround(x[i] + y[i]) : y[i]));
    expect(wrong).toBe(-1);
  }),
);
