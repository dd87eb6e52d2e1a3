/**
 * Prints the product with packed weights (kernels/pack.wgsl) by tile shape. Weights are converted to float32 as they are
 * loaded, eight at a time.
 */

import { loadsOf, rowOfLoad, rowOfSum, rowValue, tileEntry } from './matmul.ts';
import { indent, range } from './text.ts';
import type { PackedTile } from './tiles.ts';

const PARTS = ['lo.x', 'lo.y', 'lo.z', 'lo.w', 'hi.x', 'hi.y', 'hi.z', 'hi.w'];

/**
 * Prints the WGSL of a tile. A thread's eight columns are neighbours, because a word of int4 holds eight of them. Eight steps of k are
 * unrolled, so a thread handles eight runs of eight values at a time, whether the matrix is stored transposed or not.
 */
export function printPacked(tile: PackedTile): string {
  const { rows, subgroup: share, workgroup, quad = false } = tile;
  const lanes = share ? 'lanes' : 'LANES';
  const loads = loadsOf(tile);
  const sum = (i: number, j: number) => range(8).reduce((s, d) => `${s} + x${i}_${d} * b${j}_${d}`, `s${i}_${j}`);
  const body = [
    ...range(8).map((g) => `let g${g} = eight(ib${g ? ` + ${g}u * params.run` : ''});`),
    ...range(loads).flatMap((q) => range(8).map((d) => `let a${q}_${d} = f32(a[ia${q}${d ? ` + ${d}u` : ''}]);`)),
    ...range(8).map((j) =>
      range(8)
        .map((d) => `let b${j}_${d} = select(g${d}.${PARTS[j]}, g${j}.${PARTS[d]}, NT);`)
        .join(' '),
    ),
    ...range(rows).flatMap((i) => [
      range(8)
        .map((d) => `let x${i}_${d} = ${rowValue(tile, i, d)};`)
        .join(' '),
      ...range(8).map((j) => `s${i}_${j} = ${sum(i, j)};`),
    ]),
    `${range(loads)
      .map((q) => `ia${q} += 8u;`)
      .join(' ')} ib += params.block;`,
  ];
  return `${share ? 'enable subgroups;\n\n' : ''}// Product with a matrix in fewer bits: y[m, n] = sum over k of a[m, k] * w(k, n), then + add, then + y[m, n] if asked.
//
//   a     [M, K]
//   b     [blocks of words] of pack.wgsl; a block's values are neighbours in the stored matrix:
//         NT = false   w is [K, N]: runs of eight columns; run = N, block = 8 N, col = 1
//         NT = true    w is [N, K], transposed: runs of eight k; run = K, block = 8, col = K
//   add   added = 1: bias [N];  added = 2: [M, N], the residual stream;  added = 0: any buffer
//   y     [M, N]; read first when accumulate = 1
//
// Grid      a ${share ? 'subgroup' : 'row of LANES threads'} computes ${rows} x (8 * ${share ? 'subgroup size' : 'LANES'}) outputs, ${rows} x 8 per thread; workgroups in a row, folded over
//           x and y past 65535. N and K are multiples of 8, so that no run of eight leaves its row or its block.
// Numerics  weights are converted to the same float32 as by unpack.wgsl, and each output is summed over k in ascending
//           order, from 0: the same bits as unpack.wgsl followed by a float32 product.
//           Printed by kernels/matmulPacked.ts.
// Checked   against unpack.wgsl followed by a float32 product, bit for bit, by test/gpu/matmul_packed.test.ts.

struct Params {
  M: u32,     // rows of y
  N: u32,     // columns of y
  K: u32,     // summed over
  run: u32,   // values from one run of eight to the next
  block: u32, // values from one eight k to the next
  col: u32,   // values from one column of y to the next
  added: u32,
  accumulate: u32,
}

override WG: u32 = ${workgroup}u; // threads in a workgroup; a multiple of the ${share ? 'subgroup size' : 'LANES'}
override FORMAT: u32 = 0u; // as in pack.wgsl
override NT: bool = false;
${share ? '' : `override LANES: u32 = ${tile.lanes ?? 4}u; // neighbouring threads that read neighbouring columns\n`}
alias A = f32; // f16 if the buffer has halves (src/gpu/halves.ts)
alias Y = f32;

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> add: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<Y>;
@group(0) @binding(4) var<uniform> params: Params;

struct Eight {
  lo: vec4f,
  hi: vec4f,
}

fn bytes(word: u32) -> vec4f {
  return vec4f((vec4u(word) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(255u)) - 128.0;
}

fn nibbles(word: u32) -> vec4f {
  return vec4f((vec4u(word) >> vec4u(0u, 4u, 8u, 12u)) & vec4u(15u)) - 8.0;
}

// Values i .. i + 7; i is a multiple of 8.
fn eight(i: u32) -> Eight {
  if (FORMAT == 0u) {
    let at = i / 2u;
    let lo = vec4f(unpack2x16float(b[at]), unpack2x16float(b[at + 1u]));
    return Eight(lo, vec4f(unpack2x16float(b[at + 2u]), unpack2x16float(b[at + 3u])));
  }
  if (FORMAT == 1u) {
    let at = i / 32u * 9u;
    let scale = bitcast<f32>(b[at]);
    let word = at + 1u + i % 32u / 4u;
    return Eight(bytes(b[word]) * scale, bytes(b[word + 1u]) * scale);
  }
  let at = i / 32u * 5u;
  let scale = bitcast<f32>(b[at]);
  let word = b[at + 1u + i % 32u / 8u];
  return Eight(nibbles(word) * scale, nibbles(word >> 16u) * scale);
}

fn put(row: u32, col: u32, sum: f32) {
  var value = sum;
  if (params.added == 1u) { value += add[col]; }
  if (params.added == 2u) { value += add[row * params.N + col]; }
  if (params.accumulate == 1u) { value += f32(y[row * params.N + col]); }
  y[row * params.N + col] = Y(value);
}

${tileEntry(tile)}
  let across = (params.N + 8u * ${lanes} - 1u) / (8u * ${lanes}); // tiles side by side
  let row0 = tile / across * ${rows}u;
  let col0 = (tile % across * ${lanes} + lane) * 8u;
${share ? `  // No early return: ${quad ? 'quadSwapX' : 'subgroupBroadcast'} needs every lane. Rows and columns past the end compute the last ones again.\n` : '  if (row0 >= params.M) { return; }\n'}
${indent(
  2,
  range(loads).map((q) => `var ia${q} = min(${rowOfLoad(tile, q)}, params.M - 1u) * params.K;`),
)}
  var ib = min(col0, params.N - 8u) * params.col;
${indent(
  2,
  range(rows).map((i) =>
    range(8)
      .map((j) => `var s${i}_${j} = 0.0;`)
      .join(' '),
  ),
)}

  for (var k = 0u; k < params.K; k += 8u) {
${indent(4, body)}
  }

  if (col0 >= params.N) { return; }
  var sums = array<f32, ${rows * 8}>(
${indent(
  4,
  range(rows).map(
    (i) =>
      `${range(8)
        .map((j) => `s${i}_${j}`)
        .join(', ')},`,
  ),
)}
  );
  for (var i = 0u; i < ${rows}u; i++) {
    let row = ${rowOfSum(tile)}
    if (row >= params.M) { continue; }
    for (var j = 0u; j < 8u; j++) { put(row, col0 + j, sums[i * 8u + j]); }
  }
}
`;
}
