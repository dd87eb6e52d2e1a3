/** Prints the matrix product for hardware GPUs: a workgroup shares tiles of both operands in workgroup memory. */

import { indent, range } from './text.ts';
import type { WorkgroupTile } from './tiles.ts';

const LETTERS = 'xyzw';
const plus = (n: number) => (n ? ` + ${n}u` : '');

/** Parts of the WGSL text that are the same as in the register tiles of kernels/matmul.ts. */
interface Common {
  /** Part of the header with the shapes of a, b, add and y. */
  shapes: string;
  /** Declarations at the start of the kernel: struct Params, the bindings, and the function `put`. */
  declared: string;
}

/**
 * Prints the WGSL of a tile. The next steps of k are loaded into registers while the current ones are multiplied, so that a load's latency
 * passes during the multiplications.
 */
export function printWorkgroupTile(
  { rows, cols, depth, side = 16 }: WorkgroupTile,
  { shapes, declared }: Common,
): string {
  const [BM, BN] = [side * rows, side * cols];
  const w = rows % 4 || cols % 4 ? 2 : 4; // components of a vector
  const [across, down, deep] = [cols / w, rows / w, depth / side]; // vectors per thread: of b, of a; and steps of k
  const [vec, vecU, zero] = [`vec${w}f`, `vec${w}u`, `vec${w}f()`];
  const next = (of: string) => range(w).map((c) => `${of}${plus(c)}`);
  const stride = (vec4s: number) => side * vec4s + 1;
  const sums = range(rows).flatMap((i) => range(across).map((j) => [i, j]));
  const step = [
    ...range(down).map((q) => `let a${q} = tileA[k * ${stride(down)}u + y0${plus(side * q)}];`),
    ...range(across).map((q) => `let b${q} = tileB[k * ${stride(across)}u + x0${plus(side * q)}];`),
    ...sums.map(([i, j]) => `s${i}_${j} = s${i}_${j} + a${Math.floor(i / w)}.${LETTERS[i % w]} * b${j};`),
  ];
  const loads = range(deep).flatMap((d) => [
    ...range(down).map((q) => ({
      name: `nextA${d}_${q}`,
      value: `loadA(row0 + mOfA * ${w}u${plus(w * side * q)}, K0 + kOfA${plus(side * d)})`,
      place: `tileA[(kOfA${plus(side * d)}) * ${stride(down)}u + mOfA${plus(side * q)}]`,
    })),
    ...range(across).map((q) => ({
      name: `nextB${d}_${q}`,
      value: `loadB(K0 + kOfB${plus(side * d)}, col0 + nOfB * ${w}u${plus(w * side * q)})`,
      place: `tileB[(kOfB${plus(side * d)}) * ${stride(across)}u + nOfB${plus(side * q)}]`,
    })),
  ]);
  return `// Matrix product: y[m, n] = sum over k of a(m, k) * b(k, n), then + add, then + y[m, n] if asked; for hardware GPUs.
//${shapes}//
// Grid      a workgroup of ${side} x ${side} threads computes ${BM} x ${BN} outputs, ${rows} x ${cols} per thread (${w} x ${w}, ${w * side} apart); ${depth} steps of k at a time are
//           in its memory as vectors, and the next ${depth} in registers. Workgroups in a row, folded over x and y past 65535. Any M, K, N >= 1.
// Numerics  one thread sums each output over k in ascending order, s = s + a * b, from 0, like every other tile: the
//           same bits. Steps past K add 0 * 0. Printed by kernels/matmulWorkgroup.ts.
// Checked   against product() in test/gpu/matmulSuite.ts by test/gpu/matmul.test.ts.

${declared}
// A row of vectors has one more than necessary. Otherwise lanes with successive k would all store to one memory bank.
var<workgroup> tileA: array<${vec}, ${depth * stride(down)}>; // [k][m / ${w}]
var<workgroup> tileB: array<${vec}, ${depth * stride(across)}>; // [k][n / ${w}]

// An index past the end is clamped, and its value replaced by 0: without branches, all loads wait together.
fn loadA(row: u32, k: u32) -> ${vec} {
  let at = min(k, params.K - 1u) * params.stepA;
  let value = ${vec}(${next('row')
    .map((m) => `f32(a[min(${m}, params.M - 1u) * params.rowA + at])`)
    .join(', ')});
  return select(${zero}, value, ${vecU}(${next('row').join(', ')}) < ${vecU}(select(0u, params.M, k < params.K)));
}

fn loadB(k: u32, col: u32) -> ${vec} {
  let at = min(k, params.K - 1u) * params.stepB;
  let value = ${vec}(${next('col')
    .map((n) => `f32(b[at + min(${n}, params.N - 1u) * params.colB])`)
    .join(', ')});
  return select(${zero}, value, ${vecU}(${next('col').join(', ')}) < ${vecU}(select(0u, params.N, k < params.K)));
}

fn putAll(row: u32, col: u32, sums: ${vec}) {
  if (row >= params.M || col >= params.N) { return; }
  for (var c = 0u; c < ${w}u; c++) { put(row, col + c, sums[c]); }
}

@compute @workgroup_size(${side * side})
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(local_invocation_index) tid: u32,
) {
  let x0 = tid % ${side}u;
  let y0 = tid / ${side}u;
  let tile = wg.y * grid.x + wg.x;
  let across = (params.N + ${BN - 1}u) / ${BN}u; // tiles side by side
  let row0 = tile / across * ${BM}u;
  let col0 = tile % across * ${BN}u;
  // Neighbouring threads read neighbouring values, whichever of a and b is transposed.
  let kOfA = select(y0, x0, params.stepA == 1u);
  let kOfB = select(y0, x0, params.stepB == 1u);
  let mOfA = x0 + y0 - kOfA;
  let nOfB = x0 + y0 - kOfB;
${indent(
  2,
  range(rows).map((i) =>
    range(across)
      .map((j) => `var s${i}_${j} = ${zero};`)
      .join(' '),
  ),
)}
${indent(
  2,
  loads.map(({ name, value }) => `var ${name} = ${value.replace('K0 + ', '')};`),
)}

  for (var k0 = 0u; k0 < params.K; k0 += ${depth}u) {
${indent(
  4,
  loads.map(({ name, place }) => `${place} = ${name};`),
)}
    workgroupBarrier();
${indent(
  4,
  loads.map(({ name, value }) => `${name} = ${value.replace('K0', `k0 + ${depth}u`)};`),
)}
    for (var k = 0u; k < ${depth}u; k++) {
${indent(6, step)}
    }
    workgroupBarrier();
  }

  let row = row0 + y0 * ${w}u;
  let col = col0 + x0 * ${w}u;
${indent(
  2,
  sums.map(
    ([i, j]) => `putAll(row${plus(w * side * Math.floor(i / w) + (i % w))}, col${plus(w * side * j)}, s${i}_${j});`,
  ),
)}
}
`;
}
