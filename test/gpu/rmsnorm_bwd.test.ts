import { expect, test } from 'vitest';
import { rowGrid } from '../../src/gpu/ops/grid.ts';
import { RMSNORM_BLOCK_ROWS, rmsnormBwd, rmsnormBwdKernel } from '../../src/gpu/ops/rmsnorm.ts';
import * as reference from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { expectWithin, f64, readRoomy, roomy, U } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

test.each([
  { N: 1, C: 1, residual: true },
  { N: 5, C: 3, residual: false },
  { N: 3, C: 63, residual: true },
  { N: 3, C: 64, residual: false },
  { N: 3, C: 65, residual: true },
  { N: 2, C: 1536, residual: true },
])('dx matches float64 for N=$N C=$C, residual gradient: $residual', ({ N, C, residual }) =>
  withGpu(async (gpu) => {
    const r = rng(N * 31 + C);
    const [x, dy, weight, dres] = [r.normals(N * C, 3), r.normals(N * C), r.normals(C), r.normals(N * C)];
    const rstd = Float32Array.from(reference.rmsnorm(f64(x), f64(weight), 1e-6).rstd);
    const dx = roomy(gpu, 'dx', N * C);
    rmsnormBwd(gpu, {
      x: gpu.buffer('x', x),
      weight: gpu.buffer('weight', weight),
      rstd: gpu.buffer('rstd', rstd),
      dy: gpu.buffer('dy', dy),
      ...(residual && { dres: gpu.buffer('dres', dres) }),
      dx,
      dweight: gpu.buffer('dweight', C * 4),
      partial: gpu.buffer('partial', Math.ceil(N / RMSNORM_BLOCK_ROWS) * C * 4),
      N,
      C,
    });
    const back = reference.rmsnormBwd(f64(dy), f64(x), f64(weight), f64(rstd)).dx;
    const want = residual ? back.map((g, i) => g + dres[i]) : back;
    // Rounding: C-term sum over WG threads, 2 products per term, a division (5) and 6 more products and sums.
    const roundings = C / rowGrid(gpu).LANES + 8 + 13;
    const size = sizes(x, dy, weight, rstd);
    expectWithin(
      await readRoomy(gpu, dx, N * C),
      want,
      (i) => roundings * U * (size[i] + (residual ? Math.abs(dres[i]) : 0)),
    );
  }),
);

/** Returns the terms of dx with the absolute value of each. Rounding errors are relative to these. */
function sizes(x: Float32Array, dy: Float32Array, weight: Float32Array, rstd: Float32Array): Float64Array {
  const C = weight.length;
  const out = new Float64Array(x.length);
  for (let n = 0; n < rstd.length; n++) {
    let dot = 0;
    for (let c = 0; c < C; c++) dot += Math.abs(dy[n * C + c] * weight[c] * x[n * C + c]);
    for (let c = 0; c < C; c++) {
      const i = n * C + c;
      out[i] = rstd[n] * (Math.abs(dy[i] * weight[c]) + (Math.abs(x[i]) * rstd[n] ** 2 * dot) / C);
    }
  }
  return out;
}

test('workgroups past the last row write nothing', () =>
  withGpu(async (gpu) => {
    const [N, C] = [3, 4];
    const r = rng(1);
    const v = (n: number) => gpu.buffer('in', r.normals(n));
    const dx = poisoned(gpu, 'dx', 5 * C);
    const views = { x: v(5 * C), weight: v(C), rstd: v(5), dy: v(5 * C), dres: v(5 * C), dx };
    gpu.dispatch(rmsnormBwdKernel, views, { N, C }, 5, { ...rowGrid(gpu), ADD: 1 });
    expect([...(await gpu.readF32(dx))].map(Number.isNaN).indexOf(true)).toBe(N * C);
  }));
