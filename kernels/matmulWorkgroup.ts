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
 * Prints the WGSL of a tile. With 16 x 16 threads and depth 16, every thread loads rows / 4 vec4s of matrix a and cols / 4 vec4s of matrix
 * b at a time.
 */
export function printWorkgroupTile({ rows, cols, depth }: WorkgroupTile, { shapes, declared }: Common): string {
  const [BM, BN] = [16 * rows, 16 * cols];
  const [across, down] = [cols / 4, rows / 4]; // vec4s per thread
  const sums = range(rows).flatMap((i) => range(across).map((j) => [i, j]));
  const step = [
    ...range(down).map((q) => `let a${q} = tileA[k * ${STRIDE(down)}u + y0${plus(16 * q)}];`),
    ...range(across).map((q) => `let b${q} = tileB[k * ${STRIDE(across)}u + x0${plus(16 * q)}];`),
    ...sums.map(([i, j]) => `s${i}_${j} = s${i}_${j} + a${i >> 2}.${LETTERS[i & 3]} * b${j};`),
  ];
  return `// Matrix product: y[m, n] = sum over k of a(m, k) * b(k, n), then + add, then + y[m, n] if asked; for hardware GPUs.
//${shapes}//
// Grid      a workgroup of 16 x 16 threads computes ${BM} x ${BN} outputs, ${rows} x ${cols} per thread (4 x 4, 64 apart); ${depth} steps of k at a time are loaded
//           into its memory as vec4s. Workgroups in a row, folded over x and y past 65535. Any M, K, N >= 1.
// Numerics  one thread sums each output over k in ascending order, s = s + a * b, from 0, like every other tile: the
//           same bits. Steps past K add 0 * 0. Printed by kernels/matmulWorkgroup.ts.
// Checked   against product() in test/gpu/matmulSuite.ts by test/gpu/matmul.test.ts.

${declared}
// A row of vec4s has one more than necessary. Otherwise lanes with successive k would all store to one memory bank.
var<workgroup> tileA: array<vec4f, ${depth * STRIDE(down)}>; // [k][m / 4]
var<workgroup> tileB: array<vec4f, ${depth * STRIDE(across)}>; // [k][n / 4]

fn loadA(row: u32, k: u32) -> f32 {
  if (row >= params.M || k >= params.K) { return 0.0; }
  return f32(a[row * params.rowA + k * params.stepA]);
}

fn loadB(k: u32, col: u32) -> f32 {
  if (col >= params.N || k >= params.K) { return 0.0; }
  return f32(b[k * params.stepB + col * params.colB]);
}

fn put4(row: u32, col: u32, sums: vec4f) {
  if (row >= params.M || col >= params.N) { return; }
  for (var c = 0u; c < 4u; c++) { put(row, col + c, sums[c]); }
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(local_invocation_index) tid: u32,
) {
  let x0 = tid % 16u;
  let y0 = tid / 16u;
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
      .map((j) => `var s${i}_${j} = vec4f();`)
      .join(' '),
  ),
)}

  for (var k0 = 0u; k0 < params.K; k0 += ${depth}u) {
${indent(
  4,
  range(down).flatMap((q) => [
    `let m${q} = row0${plus(64 * q)} + mOfA * 4u;`,
    `tileA[kOfA * ${STRIDE(down)}u + mOfA${plus(16 * q)}] = vec4f(${range(4)
      .map((c) => `loadA(m${q}${plus(c)}, k0 + kOfA)`)
      .join(', ')});`,
  ]),
)}
${indent(
  4,
  range(across).flatMap((q) => [
    `let n${q} = col0${plus(64 * q)} + nOfB * 4u;`,
    `tileB[kOfB * ${STRIDE(across)}u + nOfB${plus(16 * q)}] = vec4f(${range(4)
      .map((c) => `loadB(k0 + kOfB, n${q}${plus(c)})`)
      .join(', ')});`,
  ]),
)}
    workgroupBarrier();
    for (var k = 0u; k < ${depth}u; k++) {
${indent(6, step)}
    }
    workgroupBarrier();
  }

  let row = row0 + y0 * 4u;
  let col = col0 + x0 * 4u;
${indent(
  2,
  sums.map(([i, j]) => `put4(row${plus(64 * (i >> 2) + (i & 3))}, col${plus(64 * j)}, s${i}_${j});`),
)}
}
`;
}

/** Number of vec4s from one step of k to the next in a tile in workgroup memory. */
const STRIDE = (vec4s: number) => 16 * vec4s + 1;
