/** Prints attention's WGSL in which the lanes of a subgroup load each key together. For adapters with subgroups of 4 or of 8 only. */

import { dot, each, FOLD, indent, range } from './text.ts';

/** Parameters from which an attention kernel that holds everything in registers is printed. */
export interface AttentionTile {
  /** Head dim, a multiple of 4. */
  D: number;
  /** Rows per thread (keys per thread in the backward kernel for k and v). */
  rows: number;
  /** Lanes of a subgroup that load each key together; 0 = every thread loads its own keys. */
  lanes: number;
  /** True for the kernels of kernels/attentionBlock.ts. */
  block?: boolean;
}

export type Binding = [access: string, name: string, type: string];

/** Prints the declarations of an attention kernel: parameters, constants, bindings and `fold`. @param threads threads in a workgroup */
export const declared = (D: number, threads: number, bindings: Binding[]) => `struct Params {
  N: u32,      // rows
  H: u32,      // query heads
  K: u32,      // key/value heads
  D: u32,      // ${D}
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = ${threads}u; // threads in a workgroup
const D4 = ${D / 4}u; // vec4s in a head
alias Act = vec4f; // activations: vec4h if they are halves (src/gpu/halves.ts)

${bindings.map(([access, name, type], i) => `@group(0) @binding(${i}) var<storage, ${access}> ${name}: array<${type}>;`).join('\n')}
@group(0) @binding(${bindings.length}) var<uniform> params: Params;

${FOLD}
`;

const head = (what: string, D: number, L: number, bindings: Binding[]) => `enable subgroups;
diagnostic(off, subgroup_uniformity); // a workgroup is one subgroup, and all its lanes run every iteration of every loop

${what}
${declared(D, L, bindings)}`;

/**
 * Prints the start of `main`.
 * @param heads name of the parameter with the number of heads: H or K
 */
const entry = (heads: 'H' | 'K', L: number, R: number) => `
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let at = wg.y * grid.x + wg.x;
  let head = at % params.${heads};
  let spanStart = at / params.${heads} * ${L * R}u;
  if (spanStart >= params.N) { return; }
  let spanEnd = min(spanStart + ${L * R}u, params.N);
  let tile = spanStart + lane * ${R}u;
`;

const note = (L: number, R: number, what: string, reference: string, test: string) =>
  `// Grid      a workgroup is one subgroup of ${L} lanes: ${L * R} neighbouring rows of one head, ${R} a lane. Each lane loads a part of
//           ${what}, and broadcasts it to the others.
// Numerics  the same bits as without sharing; a row that does not see a key adds 0 for it (so the key must be finite).
// Checked   against ${reference}() in src/extensions/verify/reference/ops.ts by test/gpu/${test}.test.ts. Printed by
//           kernels/attentionShared.ts.
`;

/** Prints the load of `count` vec4s from `source(index)`: each lane loads some of them and broadcasts these to all lanes as `name(i)`. */
const together = (
  count: number,
  L: number,
  source: (index: string) => string,
  name: (i: number) => string,
  id: string,
) => [
  each(
    Math.ceil(count / L),
    (i) =>
      `let ${id}${i} = vec4f(${source(i * L + L <= count ? `lane + ${i * L}u` : `min(lane + ${i * L}u, ${count - 1}u)`)});`,
  ),
  each(count, (i) => `let ${name(i)} = subgroupBroadcast(${id}${Math.floor(i / L)}, ${i % L}u);`),
];
/** Prints the load of a key's k as `k_0`, `k_1`, ... and of its v as `v_0`, ...; in memory, v is `vHead` vec4s after k. */
const loadKey = (n: number, L: number) =>
  together(
    2 * n,
    L,
    (i) => `kv[key + select(${i}, ${i} + vHead - D4, ${i} >= D4)]`,
    (i) => (i < n ? `k_${i}` : `v_${i - n}`),
    'part',
  );

/**
 * Prints loops over the keys of rows. Rows that share their prefix and the start of their own range form a run. The statements `before` and
 * `after` are executed once per run, the statements `key` once for each key of the run.
 */
const overRuns = (R: number, before: string[], key: string[], after: string[]) => `
  var first = spanStart;
  while (first < spanEnd) {
    let span = ranges[first];
    var end = spanEnd; // end of the run
${indent(
  4,
  range(R).map(
    (r) =>
      `if (tile + ${r}u > first && tile + ${r}u < spanEnd && any(mine${r}.xyz != span.xyz)) { end = min(end, tile + ${r}u); }`,
  ),
)}
    end = subgroupMin(end);
${indent(4, [
  ...range(R).map((r) => `let in${r} = tile + ${r}u >= first && tile + ${r}u < end;`),
  `let ownStop = subgroupMax(${range(R)
    .map((r) => `select(0u, mine${r}.w, in${r})`)
    .reduce((a, b) => `max(${a}, ${b})`)});`,
  ...before,
])}
    for (var part = 0u; part < 2u; part++) {
      let own = part == 1u;
      let stop = select(span.y, ownStop, own);
${indent(
  6,
  range(R).map((r) => `let until${r} = select(0u, select(0xffffffffu, mine${r}.w, own), in${r});`),
)}
      for (var j = select(span.x, span.z, own); j < stop; j++) {
        let key = j * 2u * vHead + kHead;
${indent(8, key)}
      }
    }
${indent(4, after)}
    first = end;
  }
}
`;
const rowOf = (r: number, loads: string[]) => [
  `let row${r} = min(tile + ${r}u, params.N - 1u); let mine${r} = ranges[row${r}];`,
  `let at${r} = (row${r} * params.H + head) * D4;`,
  ...loads,
];
const queryHead = '  let kHead = head / (params.H / params.K) * D4;\n  let vHead = params.K * D4;\n';

/** Prints the forward kernel for head dim D, with R query rows per lane. */
export function sharedForward({ D, rows: R, lanes: L }: AttentionTile): string {
  const n = D / 4;
  const bindings: Binding[] = [
    ['read', 'q', 'Act'],
    ['read', 'kv', 'Act'],
    ['read', 'ranges', 'vec4u'],
    ['read_write', 'out', 'Act'],
    ['read_write', 'lse', 'f32'],
  ];
  const what = `// attention_d${D}.wgsl with keys loaded together; same inputs, same outputs.
//
${note(L, R, 'a key', 'attention', 'attention')}`;
  return `${head(what, D, L, bindings)}${entry('H', L, R)}${queryHead}${indent(
    2,
    range(R).map((r) => rowOf(r, [each(n, (j) => `let q${r}_${j} = vec4f(q[at${r} + ${j}u]);`)])),
  )}
${overRuns(
  R,
  range(R).map((r) => `${each(n, (j) => `var o${r}_${j} = vec4f();`)} var top${r} = -3.0e38; var sum${r} = 0.0;`),
  [
    ...loadKey(n, L),
    ...range(R).flatMap((r) => [
      '{',
      `  let score = ${dot(`q${r}`, 'k', n)} * params.scale;`,
      `  let sees = j < until${r};`,
      `  let newTop = select(top${r}, max(top${r}, score), sees);`,
      `  let keep = exp(top${r} - newTop);`,
      `  let p = select(0.0, exp(score - newTop), sees);`,
      `  top${r} = newTop; sum${r} = sum${r} * keep + p;`,
      `  ${each(n, (j) => `o${r}_${j} = o${r}_${j} * keep + p * v_${j};`)}`,
      '}',
    ]),
  ],
  range(R).flatMap((r) => [
    `if (in${r}) {`,
    `  ${each(n, (j) => `out[at${r} + ${j}u] = Act(o${r}_${j} / sum${r});`)}`,
    `  lse[row${r} * params.H + head] = top${r} + log(sum${r});`,
    '}',
  ]),
)}`;
}

/** Prints the backward kernel that computes dq, the gradient of q, and delta. */
export function sharedBackwardQ({ D, rows: R, lanes: L }: AttentionTile): string {
  const n = D / 4;
  const bindings: Binding[] = [
    ['read', 'q', 'Act'],
    ['read', 'kv', 'Act'],
    ['read', 'out', 'Act'],
    ['read', 'dout', 'vec4f'],
    ['read', 'lse', 'f32'],
    ['read', 'ranges', 'vec4u'],
    ['read_write', 'dq', 'vec4f'],
    ['read_write', 'delta', 'f32'],
  ];
  const what = `// attention_bwd_q_d${D}.wgsl with keys loaded together; same inputs, same outputs.
//
${note(L, R, 'a key', 'attentionBwd', 'attention_bwd')}`;
  return `${head(what, D, L, bindings)}${entry('H', L, R)}${queryHead}${indent(
    2,
    range(R).map((r) =>
      rowOf(r, [
        each(n, (j) => `let q${r}_${j} = vec4f(q[at${r} + ${j}u]);`),
        each(n, (j) => `let g${r}_${j} = dout[at${r} + ${j}u];`),
        `let delta${r} = fold(${range(n)
          .map((j) => `g${r}_${j} * vec4f(out[at${r} + ${j}u])`)
          .join(' + ')});`,
        `let lse${r} = lse[row${r} * params.H + head];`,
      ]),
    ),
  )}
${overRuns(
  R,
  range(R).map((r) => each(n, (j) => `var d${r}_${j} = vec4f();`)),
  [
    ...loadKey(n, L),
    ...range(R).flatMap((r) => [
      '{',
      `  let p = select(0.0, exp(${dot(`q${r}`, 'k', n)} * params.scale - lse${r}), j < until${r});`,
      `  let ds = p * (${dot(`g${r}`, 'v', n)} - delta${r}) * params.scale;`,
      `  ${each(n, (j) => `d${r}_${j} += ds * k_${j};`)}`,
      '}',
    ]),
  ],
  range(R).flatMap((r) => [
    `if (in${r}) {`,
    `  ${each(n, (j) => `dq[at${r} + ${j}u] = d${r}_${j};`)}`,
    `  delta[row${r} * params.H + head] = delta${r};`,
    '}',
  ]),
)}`;
}

/** Prints the backward kernel that computes the gradients of k and v, with R key rows per lane. The lanes load each query together. */
export function sharedBackwardKV({ D, rows: R, lanes: L }: AttentionTile): string {
  const n = D / 4;
  const bindings: Binding[] = [
    ['read', 'q', 'Act'],
    ['read', 'kv', 'Act'],
    ['read', 'dout', 'vec4f'],
    ['read', 'lse', 'f32'],
    ['read', 'delta', 'f32'],
    ['read', 'queryEnd', 'u32'],
    ['read_write', 'dkv', 'vec4f'],
  ];
  const what = `// attention_bwd_kv_d${D}.wgsl with queries loaded together; same inputs, same outputs.
//
${note(L, R, 'a query and its gradient', 'attentionBwd', 'attention_bwd')}`;
  return `${head(what, D, L, bindings)}${entry('K', L, R)}  let share = params.H / params.K; // query heads that read this key head
  let vHead = params.K * D4;
${indent(
  2,
  range(R).map((r) => [
    `let j${r} = min(tile + ${r}u, params.N - 1u); let end${r} = queryEnd[j${r}];`,
    `let key${r} = j${r} * 2u * vHead + head * D4;`,
    each(n, (j) => `let k${r}_${j} = vec4f(kv[key${r} + ${j}u]);`),
    each(n, (j) => `let v${r}_${j} = vec4f(kv[key${r} + vHead + ${j}u]);`),
    each(n, (j) => `var dk${r}_${j} = vec4f(); var dv${r}_${j} = vec4f();`),
  ]),
)}
  let last = subgroupMax(${range(R)
    .map((r) => `end${r}`)
    .reduce((a, b) => `max(${a}, ${b})`)});

  // One loop over (row, query head), because two nested loops would keep every register alive through both.
  var row = spanStart;
  var h = head * share;
  while (row < last) {
    let query = (row * params.H + h) * D4;
    let lseRow = lse[row * params.H + h];
    let deltaRow = delta[row * params.H + h];
${indent(4, [
  ...together(
    n,
    L,
    (i) => `q[query + ${i}]`,
    (i) => `q_${i}`,
    'qPart',
  ),
  ...together(
    n,
    L,
    (i) => `dout[query + ${i}]`,
    (i) => `g_${i}`,
    'gPart',
  ),
  ...range(R).flatMap((r) => [
    '{',
    `  let p = select(0.0, exp(${dot(`k${r}`, 'q', n)} * params.scale - lseRow), (row >= j${r}) & (row < end${r}));`,
    `  let ds = p * (${dot(`v${r}`, 'g', n)} - deltaRow) * params.scale;`,
    `  ${each(n, (j) => `dv${r}_${j} += p * g_${j}; dk${r}_${j} += ds * q_${j};`)}`,
    '}',
  ]),
])}
    let turn = h + 1u == (head + 1u) * share;
    row = select(row, row + 1u, turn);
    h = select(h + 1u, head * share, turn);
  }

${indent(
  2,
  range(R).map((r) => [
    `if (tile + ${r}u < params.N) {`,
    `  ${each(n, (j) => `dkv[key${r} + ${j}u] = dk${r}_${j}; dkv[key${r} + vHead + ${j}u] = dv${r}_${j};`)}`,
    '}',
  ]),
)}
}
`;
}
