// Prints kernels/matmul_<variant>.wgsl: WGSL has no unroll, so the register tile is written out here.
//   node scripts/gen-matmul.mjs    writes every variant into kernels/
import { writeFileSync } from 'node:fs';
const range = (n) => [...Array(n).keys()];
const indent = (n, lines) => lines.map((line) => ' '.repeat(n) + line).join('\n');

/** rows x cols: outputs a thread owns; unroll: k steps written out; share: lanes that load different rows of A (0: no subgroups). */
export function matmulWgsl({ rows, cols, unroll, share, workgroup, checkedBy = 'test/gpu/matmul.test.ts' }) {
  const lanes = share ? 'lanes' : 'LANES';
  const loads = share ? rows / share : rows;
  const rowOf = (q) => (share ? `row0 + ${q * share}u + lane % ${share}u` : `row0 + ${q}u`);
  const at = (j) => (j ? `col0 + ${j}u * ${lanes}` : 'col0');
  const step = (d) => [
    ...range(loads).map((q) => `let a${q} = a[ia${q}${d ? ` + ${d}u * params.stepA` : ''}];`),
    ...range(cols).map((j) => `let b${j} = b[ib${j}${d ? ` + ${d}u * params.stepB` : ''}];`),
    ...range(rows).map((i) => {
      const x = share ? `subgroupBroadcast(a${Math.floor(i / share)}, ${i % share}u)` : `a${i}`;
      return (
        `let x${i} = ${x}; ` +
        range(cols)
          .map((j) => `s${i}_${j} += x${i} * b${j};`)
          .join(' ')
      );
    }),
  ];
  const advance = (d) => [
    range(loads)
      .map((q) => `ia${q} += ${d === 1 ? '' : `${d}u * `}params.stepA;`)
      .join(' '),
    range(cols)
      .map((j) => `ib${j} += ${d === 1 ? '' : `${d}u * `}params.stepB;`)
      .join(' '),
  ];
  const block = (d) => ['{', ...step(d).map((l) => '  ' + l), '}'];
  const main =
    unroll > 1
      ? `  for (; k + ${unroll - 1}u < params.K; k += ${unroll}u) {\n${indent(4, [...range(unroll).flatMap(block), ...advance(unroll)])}\n  }\n`
      : '';
  return `${share ? 'enable subgroups;\n\n' : ''}// Matrix product: y[m, n] = sum over k of a(m, k) * b(k, n), then + add, then + y[m, n] if asked.
//
//   a     any layout: a(m, k) = a[m * rowA + k * stepA]      NN, NT: rowA = K, stepA = 1    TN: rowA = 1, stepA = M
//   b     any layout: b(k, n) = b[k * stepB + n * colB]      NN, TN: stepB = N, colB = 1    NT: stepB = 1, colB = K
//   add   ADD = 1: bias [N];  ADD = 2: [M, N], the residual stream;  ADD = 0: any buffer
//   y     [M, N]; read first when ACCUMULATE = 1 (weight gradients)
//
// Grid      a ${share ? 'subgroup' : 'row of LANES threads'} computes ${rows} x ${share ? `(${cols} * subgroup size)` : `(${cols} * LANES)`} outputs, ${rows} x ${cols} a thread, columns a stride of ${share ? 'the subgroup size' : 'LANES'} apart;
//           workgroups in a row, folded over x and y past 65535. Any M, K, N >= 1.
// Numerics  one thread sums each output over k in ascending order, s = s + a * b, from 0: the same bits whatever the
//           tile, M or the position in the batch. Printed by scripts/gen-matmul.mjs: edit there.
// Checked   against a float64 product by ${checkedBy}.

struct Params {
  M: u32,      // rows of y
  N: u32,      // columns of y
  K: u32,      // summed over
  rowA: u32,   // a: from one m to the next
  stepA: u32,  // a: from one k to the next
  stepB: u32,  // b: from one k to the next
  colB: u32,   // b: from one n to the next
}

override WG: u32 = ${workgroup}u; // threads in a workgroup; a multiple of the ${share ? 'subgroup size' : 'LANES'}
${share ? '' : 'override LANES: u32 = 4u; // neighbouring threads that read neighbouring columns\n'}override ADD: u32 = 0u;
override ACCUMULATE: u32 = 0u;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read> add: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

fn put(row: u32, col: u32, sum: f32) {
  if (row >= params.M || col >= params.N) { return; }
  var value = sum;
  if (ADD == 1u) { value += add[col]; }
  if (ADD == 2u) { value += add[row * params.N + col]; }
  if (ACCUMULATE == 1u) { value += y[row * params.N + col]; }
  y[row * params.N + col] = value;
}

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(local_invocation_index) tid: u32,${
    share
      ? `
  @builtin(subgroup_size) lanes: u32,
  @builtin(subgroup_invocation_id) lane: u32,`
      : ''
  }
) {
${share ? '' : '  let lane = tid % LANES;\n'}  let tile = (wg.y * grid.x + wg.x) * (WG / ${lanes}) + tid / ${lanes};
  let across = (params.N + ${cols}u * ${lanes} - 1u) / (${cols}u * ${lanes}); // tiles side by side
  let row0 = tile / across * ${rows}u;
  let col0 = tile % across * ${cols}u * ${lanes} + lane;
${share ? '  // No early return: subgroupBroadcast needs every lane. Rows and columns past the end compute the last one again.\n' : '  if (row0 >= params.M) { return; }\n'}
${indent(
  2,
  range(loads).map((q) => `var ia${q} = min(${rowOf(q)}, params.M - 1u) * params.rowA;`),
)}
${indent(
  2,
  range(cols).map((j) => `var ib${j} = min(${at(j)}, params.N - 1u) * params.colB;`),
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
${indent(4, [...step(0), ...advance(1)])}
  }

${indent(
  2,
  range(rows).map((i) =>
    range(cols)
      .map((j) => `put(row0 + ${i}u, ${at(j)}, s${i}_${j});`)
      .join(' '),
  ),
)}
}
`;
}

export const variants = {
  subgroup4: { rows: 16, cols: 4, unroll: 4, share: 4, workgroup: 64 },
  subgroup4_small: { rows: 4, cols: 4, unroll: 4, share: 4, workgroup: 64 },
  subgroup8: { rows: 16, cols: 4, unroll: 1, share: 8, workgroup: 64 },
  subgroup8_small: { rows: 8, cols: 2, unroll: 1, share: 8, workgroup: 64 },
  plain: { rows: 8, cols: 8, unroll: 1, share: 0, workgroup: 64 },
  plain_small: { rows: 4, cols: 4, unroll: 2, share: 0, workgroup: 64 },
};
if (process.argv[1].endsWith('gen-matmul.mjs'))
  for (const [k, v] of Object.entries(variants))
    writeFileSync(new URL(`../kernels/matmul_${k}.wgsl`, import.meta.url), matmulWgsl(v));
