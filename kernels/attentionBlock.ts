/**
 * Prints attention's WGSL for hardware GPUs: a workgroup computes a few neighbouring rows, and every thread has one term of a block of terms
 * of their sums (one key of a query row, or one query of a key row).
 */

import { type AttentionTile, type Binding, declared } from './attentionShared.ts';
import { dot, each, indent, range } from './text.ts';

/** Threads of a workgroup, and terms of a block. */
const BLOCK = 32;
/** Terms whose vectors are loaded before the first of them is added, so that the loads wait together. */
const AHEAD = 8;

const Q: Binding = ['read', 'q', 'Act'];
const KV: Binding = ['read', 'kv', 'Act'];
const DOUT: Binding = ['read', 'dout', 'vec4f'];
const LSE: Binding = ['read', 'lse', 'f32'];
const RANGES: Binding = ['read', 'ranges', 'vec4u'];

type Shape = Pick<AttentionTile, 'D' | 'rows'>;

/**
 * Groups of threads that add to different rows: each thread of a group has 4 columns. `sums` is the number of rows of a thread: row number m
 * of a thread is row `group + m * groups` of the workgroup.
 */
function threadRows({ D, rows: R }: Shape): { groups: number; sums: number } {
  const groups = Math.min(R, Math.floor((BLOCK * 4) / D));
  return { groups, sums: Math.ceil(R / groups) };
}

interface Printed extends Shape {
  /** File whose inputs and outputs these are. */
  file: string;
  /** Function in src/extensions/verify/reference/ops.ts, and file of tests. */
  checked: [reference: string, test: string];
  bindings: Binding[];
  /** Vectors per row in workgroup memory, and values per row and term. */
  vectors: string[];
  weights: string[];
  /** Parameter with the number of heads: query heads or key/value heads. */
  heads: 'H' | 'K';
  body: string;
}

function print({ D, rows: R, file, checked, bindings, vectors, weights, heads, body }: Printed): string {
  const { groups, sums } = threadRows({ D, rows: R });
  return `\
// ${file}_d${D}.wgsl for hardware GPUs; same inputs, same outputs.
//
// Grid      a workgroup of ${BLOCK} threads per (${R > 1 ? `${R} neighbouring rows` : 'row'}, head), heads fastest. Of a block of ${BLOCK} terms of the sums, each thread
//           computes one term's weight for every row; then each thread adds all terms to 4 columns of ${sums === 1 ? 'one row' : `${sums} rows`}.
// Numerics  the sums of ${file}_d${D}.wgsl in the same order: the same bits.
// Checked   against ${checked[0]}() in src/extensions/verify/reference/ops.ts by test/gpu/${checked[1]}.test.ts. Printed by
//           kernels/attentionBlock.ts.

${declared(D, BLOCK, bindings)}
${vectors.map((name) => `var<workgroup> ${name}: array<vec4f, ${(R * D) / 4}>; // [row][D4]`).join('\n')}
${weights.map((name) => `var<workgroup> ${name}: array<f32, ${R * BLOCK}>; // [row][term]`).join('\n')}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let index = wg.y * grid.x + wg.x;
  let head = index % params.${heads};
  let tile = index / params.${heads} * ${R}u;
  if (tile >= params.N) { return; }
  let column = tid % D4;
  let group = tid / D4;
${indent(
  2,
  range(sums).map((m) => `let r${m} = min(group + ${m * groups}u, ${R - 1}u);`),
)}
  let vHead = params.K * D4;
${body}}
`;
}

/**
 * Prints the loop over the blocks of `terms` terms. In `weigh`, a thread computes the weights of term number `i`. `load` loads the vectors of
 * term number `i0`, `i1`, ..., and `add` adds them to the thread's row `r0`, `r1`, ...
 */
const overBlocks = (
  shape: Shape,
  weigh: string[],
  load: (u: number) => string[],
  add: (u: number, m: number) => string[],
) => {
  const { groups, sums } = threadRows(shape);
  return [
    `for (var first = 0u; first < terms; first += ${BLOCK}u) {`,
    '  {',
    '    let i = min(first + tid, terms - 1u);',
    ...weigh.map((line) => `    ${line}`),
    '  }',
    '  workgroupBarrier();',
    `  if (group < ${groups}u) {`,
    `    let count = min(${BLOCK}u, terms - first);`,
    `    for (var c = 0u; c < count; c += ${AHEAD}u) {`,
    ...range(AHEAD)
      .flatMap((u) => [`let i${u} = first + min(c + ${u}u, count - 1u);`, ...load(u)])
      .map((line) => `      ${line}`),
    ...range(AHEAD)
      .flatMap((u) => [
        `if (c + ${u}u < count) {`,
        ...range(sums).flatMap((m) => add(u, m).map((line) => `  ${line}`)),
        '}',
      ])
      .map((line) => `      ${line}`),
    '    }',
    '  }',
    '  workgroupBarrier();',
    '}',
  ];
};

/** Prints the vectors of row r in workgroup memory under names that `dot` reads. */
const rowOf = (name: string, vectors: string, r: number, n: number) =>
  each(n, (j) => `let ${name}_${j} = ${vectors}[${r * n + j}u];`);

const keyOf = (i: string) => `select(span.z + ${i} - prefix, span.x + ${i}, ${i} < prefix) * 2u * vHead + kHead`;

/**
 * Prints the loop over runs of query rows, which share prefix and own start; a tile is one run unless it crosses two sequences. `before`
 * writes vector number `i` of the rows, which is at `at`, to workgroup memory; `after` is executed for each of the thread's rows.
 */
const overRuns = (shape: Shape, before: string[], loop: string[], after: (m: number) => string[]) => {
  const { rows: R, D } = shape;
  const { groups, sums } = threadRows(shape);
  const rowOfTile = (r: string) => `min(start + ${r}, end - 1u)`;
  return `  let kHead = head / (params.H / params.K) * D4;
  let stop = min(tile + ${R}u, params.N);
  var start = tile;
  while (start < stop) {
    let span = ranges[start];
    var end = start + 1u;
    while (end < stop && all(ranges[end].xyz == span.xyz)) { end++; }
    let prefix = select(0u, span.y - span.x, span.y > span.x);
    let last = ${range(R)
      .map((r) => `ranges[${rowOfTile(`${r}u`)}].w`)
      .reduce((a, b) => `max(${a}, ${b})`)};
    let terms = prefix + select(0u, last - span.z, last > span.z); // keys of the run
${indent(
  4,
  range(sums).flatMap((m) => [
    `let last${m} = ranges[${rowOfTile(`r${m}`)}].w;`,
    `let terms${m} = prefix + select(0u, last${m} - span.z, last${m} > span.z);`,
  ]),
)}
    for (var i = tid; i < ${(R * D) / 4}u; i += ${BLOCK}u) {
      let at = (${rowOfTile('i / D4')} * params.H + head) * D4 + i % D4;
${indent(6, before)}
    }
    workgroupBarrier();
${indent(4, loop)}
${indent(
  4,
  range(sums).flatMap((m) => [
    `if (group < ${groups}u && group + ${m * groups}u < end - start) {`,
    `  let at = ((start + r${m}) * params.H + head) * D4 + column;`,
    ...after(m).map((line) => `  ${line}`),
    '}',
  ]),
)}
    workgroupBarrier();
    start = end;
  }
`;
};

/** Prints the forward kernel for head dim D, with R rows per workgroup. */
export function blockForward(shape: Shape): string {
  const n = shape.D / 4;
  const { sums } = threadRows(shape);
  const loop = [
    ...range(sums).map((m) => `var o${m} = vec4f(); var top${m} = -3.0e38; var sum${m} = 0.0;`),
    ...overBlocks(
      shape,
      [
        `let key = ${keyOf('i')};`,
        each(n, (j) => `let k_${j} = vec4f(kv[key + ${j}u]);`),
        ...range(shape.rows).map(
          (r) => `{ ${rowOf('q', 'qs', r, n)} scores[${r * BLOCK}u + tid] = ${dot('q', 'k', n)} * params.scale; }`,
        ),
      ],
      (u) => [`let v${u} = vec4f(kv[${keyOf(`i${u}`)} + vHead + column]);`],
      (u, m) => [
        `if (i${u} < terms${m}) {`,
        `  let score = scores[r${m} * ${BLOCK}u + c + ${u}u];`,
        `  let newTop = max(top${m}, score);`,
        `  let keep = exp(top${m} - newTop);`,
        '  let p = exp(score - newTop);',
        `  top${m} = newTop; sum${m} = sum${m} * keep + p;`,
        `  o${m} = o${m} * keep + p * v${u};`,
        '}',
      ],
    ),
  ];
  return print({
    ...shape,
    file: 'attention',
    checked: ['attention', 'attention'],
    bindings: [Q, KV, RANGES, ['read_write', 'out', 'Act'], ['read_write', 'lse', 'f32']],
    vectors: ['qs'],
    weights: ['scores'],
    heads: 'H',
    body: overRuns(shape, ['qs[i] = vec4f(q[at]);'], loop, (m) => [
      `out[at] = Act(o${m} / sum${m});`,
      `if (column == 0u) { lse[at / D4] = top${m} + log(sum${m}); }`,
    ]),
  });
}

/** Prints the backward kernel that computes dq, the gradient of q, and delta, with R rows per workgroup. */
export function blockBackwardQ(shape: Shape): string {
  const { D, rows: R } = shape;
  const n = D / 4;
  const { sums } = threadRows(shape);
  const loop = [
    // Every thread needs delta and lse of all rows.
    ...range(R).flatMap((r) => [
      `let row${r} = min(start + ${r}u, end - 1u) * params.H + head;`,
      `let delta${r} = fold(${range(n)
        .map((j) => `gs[${r * n + j}u] * vec4f(out[row${r} * D4 + ${j}u])`)
        .join(' + ')});`,
      `let lse${r} = lse[row${r}];`,
    ]),
    ...range(sums).map((m) => `var d${m} = vec4f();`),
    ...overBlocks(
      shape,
      [
        `let key = ${keyOf('i')};`,
        each(n, (j) => `let k_${j} = vec4f(kv[key + ${j}u]);`),
        each(n, (j) => `let v_${j} = vec4f(kv[key + vHead + ${j}u]);`),
        ...range(R).flatMap((r) => [
          `{ ${rowOf('q', 'qs', r, n)} ${rowOf('g', 'gs', r, n)}`,
          `  let p = exp(${dot('q', 'k', n)} * params.scale - lse${r});`,
          `  weights[${r * BLOCK}u + tid] = p * (${dot('g', 'v', n)} - delta${r}) * params.scale; }`,
        ]),
      ],
      (u) => [`let k${u} = vec4f(kv[${keyOf(`i${u}`)} + column]);`],
      (u, m) => [`if (i${u} < terms${m}) { let ds = weights[r${m} * ${BLOCK}u + c + ${u}u]; d${m} += ds * k${u}; }`],
    ),
    ...range(R).map((r) => `if (tid == ${r}u && ${r}u < end - start) { delta[row${r}] = delta${r}; }`),
  ];
  return print({
    ...shape,
    file: 'attention_bwd_q',
    checked: ['attentionBwd', 'attention_bwd'],
    bindings: [
      ...[Q, KV],
      ['read', 'out', 'Act'],
      ...[DOUT, LSE, RANGES],
      ['read_write', 'dq', 'vec4f'],
      ['read_write', 'delta', 'f32'],
    ],
    vectors: ['qs', 'gs'],
    weights: ['weights'],
    heads: 'H',
    body: overRuns(shape, ['qs[i] = vec4f(q[at]); gs[i] = dout[at];'], loop, (m) => [`dq[at] = d${m};`]),
  });
}

/**
 * Prints the backward kernel that computes the gradients of k and v, with R key rows per workgroup. Its terms are pairs of a query row and
 * one of its heads, rows in ascending order and heads within.
 */
export function blockBackwardKV(shape: Shape): string {
  const { D, rows: R } = shape;
  const n = D / 4;
  const { groups, sums } = threadRows(shape);
  const pair = (i: string) => `((tile + ${i} / share) * params.H + head * share + ${i} % share)`;
  const keyRow = (r: string) => `min(tile + ${r}, params.N - 1u)`;
  const loop = [
    ...range(sums).map((m) => `var dk${m} = vec4f(); var dv${m} = vec4f();`),
    ...overBlocks(
      shape,
      [
        `let pair = ${pair('i')};`,
        each(n, (j) => `let q_${j} = vec4f(q[pair * D4 + ${j}u]);`),
        each(n, (j) => `let g_${j} = dout[pair * D4 + ${j}u];`),
        'let lseRow = lse[pair]; let deltaRow = delta[pair];',
        ...range(R).flatMap((r) => [
          `{ ${rowOf('k', 'ks', r, n)} ${rowOf('v', 'vs', r, n)}`,
          `  let p = exp(${dot('k', 'q', n)} * params.scale - lseRow);`,
          `  ps[${r * BLOCK}u + tid] = p;`,
          `  weights[${r * BLOCK}u + tid] = p * (${dot('v', 'g', n)} - deltaRow) * params.scale; }`,
        ]),
      ],
      (u) => [
        `let at${u} = ${pair(`i${u}`)} * D4 + column;`,
        `let q${u} = vec4f(q[at${u}]); let g${u} = dout[at${u}];`,
      ],
      (u, m) => [
        `if (i${u} >= r${m} * share && i${u} < stop${m}) {`,
        `  let p = ps[r${m} * ${BLOCK}u + c + ${u}u]; let ds = weights[r${m} * ${BLOCK}u + c + ${u}u];`,
        `  dv${m} += p * g${u}; dk${m} += ds * q${u};`,
        '}',
      ],
    ),
  ];
  return print({
    ...shape,
    file: 'attention_bwd_kv',
    checked: ['attentionBwd', 'attention_bwd'],
    bindings: [
      ...[Q, KV, DOUT, LSE],
      ['read', 'delta', 'f32'],
      ['read', 'queryEnd', 'u32'],
      ['read_write', 'dkv', 'vec4f'],
    ],
    vectors: ['ks', 'vs'],
    weights: ['ps', 'weights'],
    heads: 'K',
    body: `  let share = params.H / params.K; // query heads that read this key head
  let last = ${range(R)
    .map((r) => `queryEnd[${keyRow(`${r}u`)}]`)
    .reduce((a, b) => `max(${a}, ${b})`)};
  let terms = (max(last, tile) - tile) * share;
${indent(
  2,
  range(sums).map((m) => `let stop${m} = (max(queryEnd[${keyRow(`r${m}`)}], tile) - tile) * share;`),
)}
  for (var i = tid; i < ${(R * D) / 4}u; i += ${BLOCK}u) {
    let key = ${keyRow('i / D4')} * 2u * vHead + head * D4 + i % D4;
    ks[i] = vec4f(kv[key]); vs[i] = vec4f(kv[key + vHead]);
  }
  workgroupBarrier();
${indent(2, loop)}
${indent(
  2,
  range(sums).flatMap((m) => [
    `if (group < ${groups}u && group + ${m * groups}u < ${R}u && tile + r${m} < params.N) {`,
    `  let key = (tile + r${m}) * 2u * vHead + head * D4 + column;`,
    `  dkv[key] = dk${m}; dkv[key + vHead] = dv${m};`,
    '}',
  ]),
)}
`,
  });
}
