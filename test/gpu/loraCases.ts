/**
 * Cases of LoRA adapters: one, two and three modules of a fused matrix, some with columns that have no adapter, and their float64 results.
 */
import type { LoraSpan } from '../../src/gpu/ops/lora_up.ts';
import * as reference from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { f64 } from './check.ts';

interface LoraCase {
  name: string;
  N: number;
  R: number;
  Y: number;
  spans: LoraSpan[];
  scale: number;
}

export const LORA_CASES: LoraCase[] = [
  { name: 'one module, one of everything', N: 1, R: 1, Y: 1, spans: [{ column: 0, width: 1 }], scale: 2 },
  { name: 'one module over all columns', N: 7, R: 5, Y: 67, spans: [{ column: 0, width: 67 }], scale: 0.5 },
  { name: 'q and v of q, k, v', N: 6, R: 4, Y: 29, spans: spans([0, 13], [21, 8]), scale: 2 },
  { name: 'k alone', N: 9, R: 3, Y: 29, spans: spans([13, 8]), scale: 1.25 },
  { name: 'q, k and v', N: 65, R: 8, Y: 131, spans: spans([0, 65], [65, 33], [98, 33]), scale: 4 },
  { name: 'more rows and columns than threads of a sum', N: 203, R: 2, Y: 150, spans: spans([3, 147]), scale: 1 },
  { name: 'gate and up', N: 3, R: 17, Y: 128, spans: spans([0, 64], [64, 64]), scale: 1 },
];

/** The cases on the grid of a software adapter, and on that of hardware. */
export const ON_GRIDS = LORA_CASES.flatMap((shape) => [
  { ...shape, grid: 'software' },
  { ...shape, grid: 'hardware' },
]);

function spans(...list: [number, number][]): LoraSpan[] {
  return list.map(([column, width]) => ({ column, width }));
}

/** Returns t [N, T], b [R, J], and dy [N, Y], with their results in float64. `size` is the sum of the absolute terms. */
export function loraValues({ N, R, Y, spans, scale }: LoraCase) {
  const T = spans.length * R;
  const J = spans.reduce((sum, { width }) => sum + width, 0);
  const r = rng(N * 977 + R * 31 + Y);
  const [t, b, dy, old] = [r.normals(N * T), r.normals(R * J), r.normals(N * Y), r.normals(N * Y)];
  const oldB = r.normals(R * J);
  const [y, ySize] = [f64(old), f64(old).map(Math.abs)];
  const [dt, dtSize] = [new Float64Array(N * T), new Float64Array(N * T)];
  const [db, dbSize] = [f64(oldB), f64(oldB).map(Math.abs)];
  let j0 = 0;
  spans.forEach(({ column, width }, s) => {
    for (const [sign, outY, outT, outB] of [
      [(x: number) => x, y, dt, db],
      [Math.abs, ySize, dtSize, dbSize],
    ] as const) {
      // Returns one module's part: its t [N, R], PEFT's B [width, R], and dy [N, width].
      const ts = Float64Array.from({ length: N * R }, (_, i) => sign(t[Math.floor(i / R) * T + s * R + (i % R)]));
      const bs = Float64Array.from({ length: width * R }, (_, i) => sign(b[(i % R) * J + j0 + Math.floor(i / R)]));
      const at = (i: number) => Math.floor(i / width) * Y + column + (i % width);
      const dys = Float64Array.from({ length: N * width }, (_, i) => sign(dy[at(i)]));
      const back = reference.linearBwd(dys, ts, bs, R);
      reference.linear(ts, bs, R).forEach((value, i) => (outY[at(i)] += scale * value));
      back.dx.forEach((value, i) => (outT[Math.floor(i / R) * T + s * R + (i % R)] = scale * value));
      back.dweight.forEach((value, i) => (outB[(i % R) * J + j0 + Math.floor(i / R)] += scale * value));
    }
    j0 += width;
  });
  return { T, J, t, b, dy, old, oldB, y, ySize, dt, dtSize, db, dbSize };
}
