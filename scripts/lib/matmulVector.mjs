/** The matrix product for subgroups of four with b, add and y by fours: what finds a place in a buffer is shared by four values. */

import { indent, range } from './wgslText.mjs';

const LANES = 4; // of a quad, which swap their rows' values
const LETTERS = 'xyzw';

/** Each lane's rows are those of a quad, its columns `cols / 4` times four neighbours, four times the subgroup size apart. */
export function matmulVectorWgsl({ rows, cols, unroll, workgroup }, { shapes, params }) {
  const loads = rows / LANES;
  const fours = range(cols / 4);
  const loadRows = (d) =>
    range(loads).map((q) => `let a${q}_${d} = f32(a[ia${q}${d ? ` + ${d}u * params.stepA` : ''}]);`);
  const swapped = (i, d) => {
    const from = `a${Math.floor(i / LANES)}_${d}`;
    return [from, `quadSwapX(${from})`, `quadSwapY(${from})`, `quadSwapDiagonal(${from})`][i % LANES];
  };
  const loadFour = (g, d) => `let b${g}_${d} = vec4f(b[ib${g}${d ? ` + ${d}u * stepB` : ''}]);`;
  const value = (j, d) => `b${Math.floor(j / 4)}_${d}.${LETTERS[j % 4]}`;
  const sum = (i, j, steps) => steps.reduce((s, d) => `${s} + x${i}_${d} * ${value(j, d)}`, `s${i}_${j}`);
  // A load ends a block of straight code on SwiftShader, and within a block each use of a row's value but the last is stored
  // back to the stack. So columns are summed one by one, and what the next four need is loaded between them.
  const between = (j, steps) => {
    const next = Math.floor(j / 4) + 1;
    if (next >= fours.length) return [];
    const share = Math.ceil(steps.length / 4);
    return steps.slice((j % 4) * share, (j % 4 + 1) * share).map((d) => loadFour(next, d));
  };
  const body = (steps) => [
    ...steps.flatMap(loadRows),
    ...range(rows).map((i) => steps.map((d) => `let x${i}_${d} = ${swapped(i, d)};`).join(' ')),
    ...steps.map((d) => loadFour(0, d)),
    ...range(cols).flatMap((j) => [
      ...between(j, steps),
      ...range(rows).map((i) => `s${i}_${j} = ${sum(i, j, steps)};`),
    ]),
  ];
  const advance = (d) => {
    const by = (step) => (d === 1 ? step : `${d}u * ${step}`);
    return [
      range(loads)
        .map((q) => `ia${q} += ${by('params.stepA')};`)
        .join(' '),
      fours.map((g) => `ib${g} += ${by('stepB')};`).join(' '),
    ];
  };
  const place = (g) => (g ? ` + ${g}u * lanes` : '');
  const whole = (more) => [
    `for (var i = 0u; i < ${rows}u; i++) {`,
    '  let row = row0 + (i & ~3u) + ((lane ^ i) & 3u); // whose sums they are after the swaps',
    '  if (row >= params.M) { continue; }',
    '  let at = row * across + four0;',
    ...fours.map((g) => `  y[at${place(g)}] = vec4<Y>(sums[i * ${fours.length}u + ${g}u]${more(g)});`),
    '}',
  ];
  return `enable subgroups;

// Matrix product: y[m, n] = sum over k of a(m, k) * b(k, n), then + add, then + y[m, n] if asked. N a multiple of 4, colB = 1.
//${shapes}//
// Grid      a subgroup computes ${rows} x (${cols} * subgroup size) outputs, ${rows} x ${cols} a thread, columns four by four, the
//           fours a stride of the subgroup size apart; workgroups in a row, folded over x and y past 65535. Any M, K >= 1.
// Numerics  one thread sums each output over k in ascending order, s = s + a * b, from 0: the same bits whatever the
//           tile, M or the position in the batch. Printed by scripts/gen-matmul.mjs: edit scripts/lib/matmulVector.mjs.
// Checked   against a float64 product by test/gpu/matmul.test.ts.

${params}

override WG: u32 = ${workgroup}u; // threads in a workgroup; a multiple of the subgroup size

alias A = f32; // each f16 where its buffer holds halves (src/gpu/halves.ts)
alias B = f32;
alias Y = f32;

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<vec4<B>>;
@group(0) @binding(2) var<storage, read> add: array<vec4f>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<Y>>;
@group(0) @binding(4) var<uniform> params: Params;

fn put(row: u32, four: u32, sum: vec4f) {
  let across = params.N / 4u;
  if (row >= params.M || four >= across) { return; }
  var value = sum;
  if (params.added == 1u) { value += add[four]; }
  if (params.added == 2u) { value += add[row * across + four]; }
  if (params.accumulate == 1u) { value += vec4f(y[row * across + four]); }
  y[row * across + four] = vec4<Y>(value);
}
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(local_invocation_index) tid: u32,
  @builtin(subgroup_size) lanes: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let tile = (wg.y * grid.x + wg.x) * (WG / lanes) + tid / lanes;
  let tilesAcross = (params.N + ${cols}u * lanes - 1u) / (${cols}u * lanes);
  let across = params.N / 4u; // in fours, as everything about columns below
  let stepB = params.stepB / 4u;
  let row0 = tile / tilesAcross * ${rows}u;
  let four0 = tile % tilesAcross * ${fours.length}u * lanes + lane;
  // No early return: quadSwapX needs every lane. Rows and columns past the end compute the last one again.

${indent(
  2,
  range(loads).map(
    (q) => `var ia${q} = min(row0 + ${q * LANES}u + lane % ${LANES}u, params.M - 1u) * params.rowA;`,
  ),
)}
${indent(
  2,
  fours.map((g) => `var ib${g} = min(four0${place(g)}, across - 1u);`),
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
  for (; k + ${unroll - 1}u < params.K; k += ${unroll}u) {
${indent(4, [...body(range(unroll)), ...advance(unroll)])}
  }
  for (; k < params.K; k++) {
${indent(4, [...body([0]), ...advance(1)])}
  }

  // Rows in a loop, since stores written out take longer to compile than all the rest.
  var sums = array<vec4f, ${rows * fours.length}>(
${indent(
  4,
  range(rows).map((i) => fours.map((g) => `vec4f(${range(4).map((c) => `s${i}_${4 * g + c}`).join(', ')}),`).join(' ')),
)}
  );
  let within = four0 - lane + ${fours.length}u * lanes <= across && params.accumulate == 0u;
  if (within && params.added == 0u) {
${indent(4, whole(() => ''))}
  } else if (within && params.added == 2u) {
${indent(4, whole((g) => ` + add[at${place(g)}]`))}
  } else {
    for (var i = 0u; i < ${rows}u; i++) {
      let row = row0 + (i & ~3u) + ((lane ^ i) & 3u);
      for (var g = 0u; g < ${fours.length}u; g++) { put(row, four0 + g * lanes, sums[i * ${fours.length}u + g]); }
    }
  }
}
`;
}
