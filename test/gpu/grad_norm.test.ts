import { test } from 'vitest';
import { gradNorm, NORM_SLOTS } from '../../src/gpu/ops/adamw.ts';
import { rng } from '../random.ts';
import { expectWithin, pattern, roomy, U, withSoftwareGrid } from './check.ts';
import { withGpu } from './gpu.ts';

const CASES = [1, 255, 256, 257, 1031, 100003].flatMap((n) => [
  { n, grid: 'software', lanes: 1 },
  { n, grid: 'hardware', lanes: 256 },
]);

test.for(CASES)('every partial sum of n=$n squares matches float64 on the grid of $grid', ({ n, lanes }) =>
  withGpu(async (gpu) => {
    const g = n > 2000 ? pattern(n) : rng(n).normals(n, 100);
    const slot = 5;
    const partial = roomy(gpu, 'partial', slot + NORM_SLOTS);
    gradNorm(withSoftwareGrid(gpu, lanes === 1), { g: gpu.buffer('g', g), partial, n, slot });
    // Values before and after the slots of this gradient belong to other gradients, and must not change.
    const want = new Float64Array(slot + NORM_SLOTS + 67).fill(NaN);
    want.fill(0, slot, slot + NORM_SLOTS);
    g.forEach((x, i) => (want[slot + (Math.floor(i / lanes) % NORM_SLOTS)] += x * x));
    const zero = (x: number) => (Number.isNaN(x) ? -1 : x);
    const rtol = (Math.ceil(n / NORM_SLOTS) + 1) * U;
    const got = (await gpu.readF32(partial)).map(zero);
    expectWithin(got, want.map(zero), (i) => (Number.isNaN(want[i]) ? 0 : rtol * want[i]));
  }),
);
