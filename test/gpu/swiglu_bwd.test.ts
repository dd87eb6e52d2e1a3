import { test } from 'vitest';
import { swigluBwd } from '../../src/gpu/ops/swiglu.ts';
import * as reference from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { expectWithin, f64, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy, U } from './check.ts';
import { withGpu } from './gpu.ts';

async function check(gu: Float32Array, dy: Float32Array, N: number, fold = false): Promise<void> {
  const F = dy.length / N;
  const at = (i: number) => Math.floor(i / F) * 2 * F + (i % F);
  const gate = Float64Array.from(dy, (_, i) => gu[at(i)]);
  const up = Float64Array.from(dy, (_, i) => gu[at(i) + F]);
  const { dgate, dup } = reference.swigluBwd(f64(dy), gate, up);
  const want = new Float64Array(gu.length);
  const bound = new Float64Array(gu.length);
  for (let i = 0; i < dy.length; i++) {
    want[at(i)] = dgate[i];
    want[at(i) + F] = dup[i];
    // Rounding: exp(x) has an error of up to 3 + 2 |x| ulp, 2 U each, the division of 2.5 ulp; 1 - s has 2 U more than s.
    const s = 1 / (1 + Math.exp(-gate[i]));
    const rtol = (2 * (3 + 2 * Math.abs(gate[i])) + 5 + 8) * U;
    bound[at(i)] = 1e-36 + rtol * Math.abs(dy[i] * up[i]) * s * (1 + 2 * Math.abs(gate[i]));
    bound[at(i) + F] = 1e-36 + rtol * Math.abs(dup[i]);
  }
  await withGpu(async (gpu) => {
    const dgu = roomy(gpu, 'dgu', gu.length);
    swigluBwd(fold ? oneThreadGroups(gpu) : gpu, { gu: gpu.buffer('gu', gu), dy: gpu.buffer('dy', dy), dgu, N, F });
    expectWithin(await readRoomy(gpu, dgu, gu.length), want, (i) => bound[i]);
  });
}

test.each([
  [1, 1],
  [3, 21],
  [1, 64],
  [5, 13],
  [7, 127],
])('matches float64 for N=%i F=%i', async (N, F) => {
  const r = rng(N * 31 + F);
  await check(r.normals(N * 2 * F, 3), r.normals(N * F), N);
});

test('gates far out on both sides', () =>
  check(Float32Array.of(-200, -90, -30, 30, 90, 200, 1, 2, 3, 4, 5, 6), rng(3).normals(6), 1));

test('a grid folded over both dimensions', () => {
  const n = Math.ceil(FOLD_THREADS / 16) * 61; // 16 blocks of four rows
  return check(pattern(2 * n), pattern(n, 31), 61, true);
});
