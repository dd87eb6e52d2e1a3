/** Prints the matrix product's WGSL by tile shape. WGSL has no unroll, so the register tile is written out here. */

import { printWorkgroupTile } from './matmulWorkgroup.ts';
import { indent, range } from './text.ts';
import type { MatmulTile, RegisterTile } from './tiles.ts';

const SHAPES = `
//   a     any layout: a(m, k) = a[m * rowA + k * stepA]      NN, NT: rowA = K, stepA = 1    TN: rowA = 1, stepA = M
//   b     any layout: b(k, n) = b[k * stepB + n * colB]      NN, TN: stepB = N, colB = 1    NT: stepB = 1, colB = K
//   add   added = 1: bias [N];  added = 2: [M, N], the residual stream;  added = 0: any buffer
//   y     [M, N]; read first when accumulate = 1 (weight gradients). These are parameters and not overrides:
//         compiling a large tile takes a software adapter a second, while a branch per output has no visible cost
`;

/**
 * Lines of the kernel's header about SwiGLU, for the tiles that support it. These are tiles whose sums are in an array, so that the code
 * that stores them is a short loop, and small tiles for subgroups of 8 lanes.
 */
const GATED_SHAPES = `//         added = 3: b holds gate in its first N / 2 columns, up in the rest, and y [M, N / 2] = silu(gate) * up, with the
//         bits of the product followed by swiglu.wgsl (arXiv:2002.05202); y is not halves; any add, accumulate = 0
`;

const PARAMS = `struct Params {
  M: u32,      // rows of y
  N: u32,      // columns of y
  K: u32,      // summed over
  rowA: u32,   // a: from one m to the next
  stepA: u32,  // a: from one k to the next
  stepB: u32,  // b: from one k to the next
  colB: u32,   // b: from one n to the next
  added: u32,
  accumulate: u32,
}`;

const BUFFERS = `alias A = f32; // f16 if the buffer has halves (src/gpu/halves.ts)
alias B = f32;
alias Y = f32;

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(2) var<storage, read> add: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<Y>;
@group(0) @binding(4) var<uniform> params: Params;
`;

const PUT = `
fn put(row: u32, col: u32, sum: f32) {
  if (row >= params.M || col >= params.N) { return; }
  var value = sum;
  if (params.added == 1u) { value += add[col]; }
  if (params.added == 2u) { value += add[row * params.N + col]; }
  if (params.accumulate == 1u) { value += f32(y[row * params.N + col]); }
  y[row * params.N + col] = Y(value);
}`;

/**
 * Functions that store outputs with SwiGLU. The first half of a thread's columns is of gate, the second half of up, so that one thread has
 * both values of each pair.
 */
const PUT_GATED = `
fn gated(gate: f32, up: f32) -> f32 {
  return gate / (1.0 + exp(-gate)) * up;
}

fn put(row: u32, col: u32, width: u32, sum: f32, up: f32) {
  if (row >= params.M || col >= width) { return; }
  var value = sum;
  if (params.added == 1u) { value += add[col]; }
  if (params.added == 2u) { value += add[row * width + col]; }
  if (params.added == 3u) { value = gated(sum, up); }
  if (params.accumulate == 1u) { value += f32(y[row * width + col]); }
  y[row * width + col] = Y(value);
}`;

type Sharing = Pick<RegisterTile, 'rows' | 'subgroup' | 'quad'>;

/** Number of rows of matrix a that each lane loads. If lanes share their loads, each loads different rows. */
export const loadsOf = ({ rows, subgroup }: Sharing): number => (subgroup ? rows / subgroup : rows);

/** Returns the row of matrix a that a lane loads with its load number `q`, as WGSL. */
export const rowOfLoad = ({ subgroup }: Sharing, q: number): string =>
  subgroup ? `row0 + ${q * subgroup}u + lane % ${subgroup}u` : `row0 + ${q}u`;

/** Returns the start of `main` as WGSL. It ends with `tile`, the index of the tile that a subgroup, or a row of LANES threads, computes. */
export function tileEntry({ subgroup }: Sharing): string {
  const lanes = subgroup ? 'lanes' : 'LANES';
  const builtins = subgroup
    ? '\n  @builtin(subgroup_size) lanes: u32,\n  @builtin(subgroup_invocation_id) lane: u32,'
    : '';
  return `@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(local_invocation_index) tid: u32,${builtins}
) {
${subgroup ? '' : '  let lane = tid % LANES;\n'}  let tile = (wg.y * grid.x + wg.x) * (WG / ${lanes}) + tid / ${lanes};`;
}

/** Returns the value of row i of matrix a at step d of k as WGSL. This lane or another lane of its subgroup has loaded the value. */
export function rowValue({ subgroup, quad }: Sharing, i: number, d: number): string {
  if (!subgroup) return `a${i}_${d}`;
  const [from, place] = [`a${Math.floor(i / subgroup)}_${d}`, i % subgroup];
  if (!quad) return `subgroupBroadcast(${from}, ${place}u)`;
  return [from, `quadSwapX(${from})`, `quadSwapY(${from})`, `quadSwapDiagonal(${from})`][place];
}

/** Returns the row of y that a thread's sum number i belongs to, as WGSL. With `quad`, the row differs from lane to lane. */
export const rowOfSum = ({ quad }: Sharing): string =>
  quad ? 'row0 + (i & ~3u) + ((lane ^ i) & 3u); // the row after the swaps' : 'row0 + i;';

/** Returns the WGSL of the matrix product for a tile. */
export function printMatmul(tile: MatmulTile): string {
  if ('depth' in tile) return printWorkgroupTile(tile, { shapes: SHAPES, declared: `${PARAMS}\n\n${BUFFERS}${PUT}\n` });
  return printRegisterTile(tile);
}

function printRegisterTile(tile: RegisterTile): string {
  const { rows, cols, unroll, subgroup: share, workgroup, quad = false, gated: gates = false } = tile;
  const lanes = share ? 'lanes' : 'LANES';
  const looped = gates && (quad || rows * cols >= 128);
  const loads = loadsOf(tile);
  const at = (j: number) => (j ? `col0 + ${j}u * ${lanes}` : 'col0');
  const sum = (i: number, j: number, steps: number[]) =>
    steps.reduce((s, d) => `${s} + x${i}_${d} * b${j}_${d}`, `s${i}_${j}`);
  const loadRows = (d: number) =>
    range(loads).map((q) => `let a${q}_${d} = f32(a[ia${q}${d ? ` + ${d}u * params.stepA` : ''}]);`);
  const loadCol = (j: number, d: number) => `let b${j}_${d} = f32(b[ib${j}${d ? ` + ${d}u * params.stepB` : ''}]);`;
  const rowValues = (i: number, steps: number[]) =>
    steps.map((d) => `let x${i}_${d} = ${rowValue(tile, i, d)};`).join(' ');
  // On SwiftShader a load ends a basic block, and inside a block every use of a row's value except the last writes the value back to
  // the stack. With the loads of a column before its sums, each block uses a row's value once.
  const byColumns = (steps: number[]) => [
    ...steps.flatMap(loadRows),
    ...range(rows).map((i) => rowValues(i, steps)),
    ...range(cols).flatMap((j) => [
      ...steps.map((d) => loadCol(j, d)),
      ...range(rows).map((i) => `s${i}_${j} = ${sum(i, j, steps)};`),
    ]),
  ];
  // On lavapipe, LLVM allocates the registers, so all loads come first.
  const byRows = (steps: number[]) => [
    ...steps.flatMap((d) => [...loadRows(d), ...range(cols).map((j) => loadCol(j, d))]),
    ...range(rows).flatMap((i) => [
      rowValues(i, steps),
      ...range(cols).map((j) => `s${i}_${j} = ${sum(i, j, steps)};`),
    ]),
  ];
  const body = quad ? byColumns : byRows;
  const advance = (d: number) => [
    range(loads)
      .map((q) => `ia${q} += ${d === 1 ? '' : `${d}u * `}params.stepA;`)
      .join(' '),
    range(cols)
      .map((j) => `ib${j} += ${d === 1 ? '' : `${d}u * `}params.stepB;`)
      .join(' '),
  ];
  const sums = range(rows).map((i) =>
    range(cols)
      .map((j) => `s${i}_${j}`)
      .join(', '),
  );
  // The stores are in a loop over rows, because 256 unrolled stores take longer to compile than everything else. If all columns are
  // within y, which is the usual case, only rows are checked. Each case has its own loop, because a branch per output costs a fifth
  // of a tile's time.
  const column = (j: number) => (j ? ` + ${j}u * lanes` : '');
  const sumOf = (j: number) => `sums[i * ${cols}u + ${j}u]`;
  const whole = (value: (j: number) => string, columns = cols) => [
    `for (var i = 0u; i < ${rows}u; i++) {`,
    `  let row = ${rowOfSum(tile)}`,
    '  if (row >= params.M) { continue; }',
    '  let at = row * width + col0;',
    ...range(columns).map((j) => `  y[at${column(j)}] = Y(${value(j)});`),
    '}',
  ];
  const putAll = () => [
    `var sums = array<f32, ${rows * cols}>(`,
    ...sums.map((row) => `  ${row},`),
    ');',
    'let within = col0 - lane + own * lanes <= width && params.accumulate == 0u;',
    'if (within && params.added == 0u) {',
    ...whole(sumOf).map((line) => `  ${line}`),
    '} else if (within && params.added == 2u) {',
    ...whole((j) => `${sumOf(j)} + add[at${column(j)}]`).map((line) => `  ${line}`),
    '} else if (within && params.added == 3u) {',
    ...whole((j) => `gated(${sumOf(j)}, ${sumOf(j + half)})`, half).map((line) => `  ${line}`),
    '} else {',
    `  for (var i = 0u; i < ${rows}u; i++) {`,
    `    let row = ${rowOfSum(tile)}`,
    '    for (var j = 0u; j < own; j++) {',
    `      put(row, col0 + j * lanes, width, sums[i * ${cols}u + j], sums[i * ${cols}u + (j + ${half}u) % ${cols}u]);`,
    '    }',
    '  }',
    '}',
  ];
  const half = cols / 2;
  const putRows = (columns: number[], put: (i: number, j: number) => string) =>
    range(rows).map((i) => columns.map((j) => put(i, j)).join(' '));
  const putPairs = () => [
    ...putRows(range(half), (i, j) => `put(row0 + ${i}u, ${at(j)}, width, s${i}_${j}, s${i}_${j + half});`),
    'if (pairs) { return; }',
    ...putRows(range(half), (i, j) => `put(row0 + ${i}u, ${at(j + half)}, width, s${i}_${j + half}, 0.0);`),
  ];
  const sizesGated = `  let pairs = params.added == 3u;
  let width = select(params.N, params.N / 2u, pairs); // of y
  let own = select(${cols}u, ${half}u, pairs); // columns of y per thread
  let across = (width + own * ${lanes} - 1u) / (own * ${lanes}); // tiles side by side
  // With SwiGLU, \`last\` limits the second half of a thread's columns, and \`shift\` moves them to the columns of up. \`shift\` can be
  // negative, so the u32 sums can wrap around.
  let last = width - 1u + select(0u, ${half}u * ${lanes}, pairs);
  let shift = select(0u, width - ${half}u * ${lanes}, pairs);
`;
  const main =
    unroll > 1
      ? `  for (; k + ${unroll - 1}u < params.K; k += ${unroll}u) {\n${indent(4, [...body(range(unroll)), ...advance(unroll)])}\n  }\n`
      : '';
  return `${share ? 'enable subgroups;\n\n' : ''}// Matrix product: y[m, n] = sum over k of a(m, k) * b(k, n), then + add, then + y[m, n] if asked.
//${SHAPES}${gates ? GATED_SHAPES : ''}//
// Grid      a ${share ? 'subgroup' : 'row of LANES threads'} computes ${rows} x ${share ? `(${cols} * subgroup size)` : `(${cols} * LANES)`} outputs, ${rows} x ${cols} per thread, columns a stride of ${share ? 'the subgroup size' : 'LANES'} apart;
//           workgroups in a row, folded over x and y past 65535. Any M, K, N >= 1.
// Numerics  one thread sums each output over k in ascending order, s = s + a * b, from 0: the same bits whatever the
//           tile, M or the position in the batch. Printed by kernels/matmul.ts.
// Checked   against product() in test/gpu/matmulSuite.ts by test/gpu/matmul.test.ts.

${PARAMS}

override WG: u32 = ${workgroup}u; // threads in a workgroup; a multiple of the ${share ? 'subgroup size' : 'LANES'}
${share ? '' : `override LANES: u32 = ${tile.lanes ?? 4}u; // neighbouring threads that read neighbouring columns\n`}
${BUFFERS}${gates ? PUT_GATED : PUT}
${tileEntry(tile)}
${gates ? sizesGated : `  let across = (params.N + ${cols}u * ${lanes} - 1u) / (${cols}u * ${lanes}); // tiles side by side\n`}  let row0 = tile / across * ${rows}u;
  let col0 = tile % across * ${gates ? 'own' : `${cols}u`} * ${lanes} + lane;
${share ? `  // No early return: ${quad ? 'quadSwapX' : 'subgroupBroadcast'} needs every lane. Rows and columns past the end compute the last one again.\n` : '  if (row0 >= params.M) { return; }\n'}
${indent(
  2,
  range(loads).map((q) => `var ia${q} = min(${rowOfLoad(tile, q)}, params.M - 1u) * params.rowA;`),
)}
${indent(
  2,
  range(cols).map(
    (j) =>
      `var ib${j} = ${gates && j >= half ? `(min(${at(j)}, last) + shift)` : `min(${at(j)}, ${gates ? 'width' : 'params.N'} - 1u)`} * params.colB;`,
  ),
)}
${indent(
  2,
  range(rows).map((i) =>
    range(cols)
      .map((j) => `var s${i}_${j} = 0.0;`)
      .join(' '),
  ),
)}

  var k = 0u;
${main}  for (; k < params.K; k++) {
${indent(4, [...body([0]), ...advance(1)])}
  }

${indent(
  2,
  looped ? putAll() : gates ? putPairs() : putRows(range(cols), (i, j) => `put(row0 + ${i}u, ${at(j)}, s${i}_${j});`),
)}
}
`;
}
