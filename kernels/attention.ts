/** Prints attention's WGSL for one head dim. WGSL has no unroll, so the registers are written out here. */

import { blockBackwardKV, blockBackwardQ, blockForward } from './attentionBlock.ts';
import { type AttentionTile, sharedBackwardKV, sharedBackwardQ, sharedForward } from './attentionShared.ts';
import { dot, each, FOLD, indent, range } from './text.ts';

const params = (D: number, what: string) => `struct Params {
  N: u32,      // ${what}
  H: u32,      // query heads
  K: u32,      // key/value heads
  D: u32,      // ${D}
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = 64u; // threads in a workgroup
const D4 = ${D / 4}u; // vec4s in a head
alias Act = vec4f; // activations: vec4h if they are halves (src/gpu/halves.ts)
`;
const entry = (heads: 'H' | 'K', R: number) => `${FOLD}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let t = (wg.y * grid.x + wg.x) * WG + tid;
  let head = t % params.${heads};
  let tile = t / params.${heads} * ${R}u;
  if (tile >= params.N) { return; }
`;
const queryHead = '  let kHead = head / (params.H / params.K) * D4;\n  let vHead = params.K * D4;\n';
const runEnd = (R: number) =>
  R === 1
    ? []
    : [
        '// Rows that share prefix and own start form a run; a tile is one run unless it crosses two sequences.',
        `while (end < min(tile + ${R}u, params.N) && all(ranges[end].xyz == span.xyz)) { end++; }`,
      ];
/** Prints the declarations of a tile's row r: the end of its own key range, and its query in registers. */
const queryRow = (r: number, n: number) => [
  `let row${r} = min(first + ${r}u, end - 1u);`,
  `let end${r} = ${r ? `ranges[row${r}].w` : 'span.w'};`,
  `let at${r} = (row${r} * params.H + head) * D4;`,
  each(n, (j) => `let q${r}_${j} = vec4f(q[at${r} + ${j}u]);`),
];
const lastOf = (rows: number[]) => rows.slice(1).reduce((a, r) => `max(${a}, end${r})`, 'end0');
const tileNote = (R: number, what: string) =>
  R === 1
    ? ''
    : `\n//           ${what} for ${R} rows; to a row that does not see it, it adds 0 (so it must be finite).`;

/** Prints the forward kernel for head dim D (a multiple of 4), with R query rows per thread. */
function forward({ D, rows: R }: Pick<AttentionTile, 'D' | 'rows'>): string {
  const n = D / 4;
  const rows = range(R);
  return `// attention.wgsl for head dim ${D}, with everything in registers and ${R} row${R > 1 ? 's' : ''} a thread; same inputs, same outputs:
//   out[n, h] = sum_j softmax_j(q[n, h] . k[j, kv(h)] / sqrt(D)) v[j, kv(h)],  kv(h) = h / (H / K)
//
//   q       [N, H * D]         rotated; here and below as vec4
//   kv      [rows, 2 * K * D]  rotated k heads, then v heads
//   ranges  [N] vec4u          prefixStart, prefixEnd, ownStart, ownEnd: half-open ranges of kv rows
//   out     [N, H * D]         written
//   lse     [N, H]             log sum exp of the scaled scores, for the backward pass
//
// Grid      one thread per (${R > 1 ? `tile of ${R} rows` : 'row'}, head), heads fastest: neighbouring threads take equally long and load different keys.
// Numerics  keys in ascending order in one thread, the same bits for any N and any tile: decoding equals training.${tileNote(R, 'A key is loaded once')}
// Paper     Milakov & Gimelshein 2018, arXiv:1805.02867 (online softmax).
// Checked   against attention() in src/extensions/verify/reference/ops.ts by test/gpu/attention.test.ts. Printed by kernels/attention.ts.

${params(D, 'query rows')}
@group(0) @binding(0) var<storage, read> q: array<Act>;
@group(0) @binding(1) var<storage, read> kv: array<Act>;
@group(0) @binding(2) var<storage, read> ranges: array<vec4u>;
@group(0) @binding(3) var<storage, read_write> out: array<Act>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

${entry('H', R)}${queryHead}
  var first = tile;
  while (first < min(tile + ${R}u, params.N)) {
    let span = ranges[first];
    var end = first + 1u;
${indent(4, [
  ...runEnd(R),
  ...rows.map((r) => [
    ...queryRow(r, n),
    each(n, (j) => `var o${r}_${j} = vec4f();`),
    `var top${r} = -3.0e38; var sum${r} = 0.0;`,
  ]),
])}

    for (var part = 0u; part < 2u; part++) {
      let own = part == 1u;
      let stop = select(span.y, ${lastOf(rows)}, own);
      for (var j = select(span.x, span.z, own); j < stop; j++) {
        let key = j * 2u * vHead + kHead;
        ${each(n, (j) => `let k_${j} = vec4f(kv[key + ${j}u]);`)}
        ${each(n, (j) => `let v_${j} = vec4f(kv[key + vHead + ${j}u]);`)}
${indent(
  8,
  rows.map((r) => [
    '{',
    ...[
      `let score = ${dot(`q${r}`, 'k', n)} * params.scale;`,
      R > 1 && `let sees = !own | (j < end${r});`,
      `let newTop = ${R > 1 ? `select(top${r}, max(top${r}, score), sees)` : `max(top${r}, score)`};`,
      `let keep = exp(top${r} - newTop);`,
      `let p = ${R > 1 ? 'select(0.0, exp(score - newTop), sees)' : 'exp(score - newTop)'};`,
      `top${r} = newTop; sum${r} = sum${r} * keep + p;`,
      each(n, (j) => `o${r}_${j} = o${r}_${j} * keep + p * v_${j};`),
    ]
      .filter((l) => l)
      .map((l) => `  ${l}`),
    '}',
  ]),
)}
      }
    }

${indent(
  4,
  rows.map((r) => [
    r === 0 ? '{' : `if (first + ${r}u < end) {`,
    `  ${each(n, (j) => `out[at${r} + ${j}u] = Act(o${r}_${j} / sum${r});`)}`,
    `  lse[row${r} * params.H + head] = top${r} + log(sum${r});`,
    '}',
  ]),
)}
    first = end;
  }
}
`;
}

/** Prints the backward kernel that computes dq, the gradient of q, and delta. */
function backwardQ({ D, rows: R }: Pick<AttentionTile, 'D' | 'rows'>): string {
  const n = D / 4;
  const rows = range(R);
  return `// attention_bwd_q.wgsl for head dim ${D}, with everything in registers and ${R} row${R > 1 ? 's' : ''} a thread; same inputs, same outputs:
//   delta = dout . out,  p_j = exp(q . k_j * scale - lse),  ds_j = p_j (dout . v_j - delta) * scale,  dq = sum_j ds_j k_j
//
//   q, out, dout  [N, H * D]         here and below as vec4
//   kv            [N, 2 * K * D]
//   lse           [N, H]
//   ranges        [N] vec4u          as in attention.wgsl
//   dq            [N, H * D]         written
//   delta         [N, H]             written, for attention_bwd_kv
//
// Grid      one thread per (${R > 1 ? `tile of ${R} rows` : 'row'}, head), heads fastest: neighbouring threads take equally long and load different keys.
// Numerics  keys in ascending order in one thread.${tileNote(R, 'A key is loaded once')}
// Paper     Dao et al. 2022, arXiv:2205.14135, appendix B.
// Checked   against attentionBwd() in src/extensions/verify/reference/ops.ts by test/gpu/attention_bwd.test.ts. Printed by kernels/attention.ts.

${params(D, 'query rows')}
@group(0) @binding(0) var<storage, read> q: array<Act>;
@group(0) @binding(1) var<storage, read> kv: array<Act>;
@group(0) @binding(2) var<storage, read> out: array<Act>;
@group(0) @binding(3) var<storage, read> dout: array<vec4f>;
@group(0) @binding(4) var<storage, read> lse: array<f32>;
@group(0) @binding(5) var<storage, read> ranges: array<vec4u>;
@group(0) @binding(6) var<storage, read_write> dq: array<vec4f>;
@group(0) @binding(7) var<storage, read_write> delta: array<f32>;
@group(0) @binding(8) var<uniform> params: Params;

${entry('H', R)}${queryHead}
  var first = tile;
  while (first < min(tile + ${R}u, params.N)) {
    let span = ranges[first];
    var end = first + 1u;
${indent(4, [
  ...runEnd(R),
  ...rows.map((r) => [
    ...queryRow(r, n),
    each(n, (j) => `let g${r}_${j} = dout[at${r} + ${j}u];`),
    each(n, (j) => `var d${r}_${j} = vec4f();`),
    `let delta${r} = fold(${range(n)
      .map((j) => `g${r}_${j} * vec4f(out[at${r} + ${j}u])`)
      .join(' + ')});`,
    `let lse${r} = lse[row${r} * params.H + head];`,
  ]),
])}

    for (var part = 0u; part < 2u; part++) {
      let own = part == 1u;
      let stop = select(span.y, ${lastOf(rows)}, own);
      for (var j = select(span.x, span.z, own); j < stop; j++) {
        let key = j * 2u * vHead + kHead;
        ${each(n, (j) => `let k_${j} = vec4f(kv[key + ${j}u]);`)}
        ${each(n, (j) => `let v_${j} = vec4f(kv[key + vHead + ${j}u]);`)}
${indent(
  8,
  rows.map((r) => [
    '{',
    ...[
      `let p = ${R > 1 ? `select(0.0, exp(${dot(`q${r}`, 'k', n)} * params.scale - lse${r}), !own | (j < end${r}))` : `exp(${dot(`q${r}`, 'k', n)} * params.scale - lse${r})`};`,
      `let ds = p * (${dot(`g${r}`, 'v', n)} - delta${r}) * params.scale;`,
      each(n, (j) => `d${r}_${j} += ds * k_${j};`),
    ].map((l) => `  ${l}`),
    '}',
  ]),
)}
      }
    }

${indent(
  4,
  rows.map((r) => [
    r === 0 ? '{' : `if (first + ${r}u < end) {`,
    `  ${each(n, (j) => `dq[at${r} + ${j}u] = d${r}_${j};`)}`,
    `  delta[row${r} * params.H + head] = delta${r};`,
    '}',
  ]),
)}
    first = end;
  }
}
`;
}

/** Prints the backward kernel that computes the gradients of k and v, with R key rows per thread. */
function backwardKV({ D, rows: R }: Pick<AttentionTile, 'D' | 'rows'>): string {
  const n = D / 4;
  const keys = range(R);
  return `// attention_bwd_kv.wgsl for head dim ${D}, with everything in registers and ${R} key row${R > 1 ? 's' : ''} a thread; same inputs, same outputs.
//   dv_j = sum_n p_nj dout_n,  dk_j = sum_n ds_nj q_n   (p and ds as in attention_bwd_q.wgsl), over the H / K query heads
// The queries that see key row j are one contiguous range, j .. queryEnd[j]: to the end of the group for a prompt row, to
// the end of the sample for a response row.
//
//   q, dout     [N, H * D]      here and below as vec4
//   kv          [N, 2 * K * D]
//   lse, delta  [N, H]
//   queryEnd    [N]
//   dkv         [N, 2 * K * D]  written
//
// Grid      one thread per (${R > 1 ? `tile of ${R} key rows` : 'key row'}, key/value head), heads fastest.
// Numerics  queries in ascending order in one thread, query heads within.${R > 1 ? `\n//           A query is loaded once for ${R} keys; to a key that it does not see, it adds 0 (so it must be finite).` : ''}
// Paper     Dao et al. 2022, arXiv:2205.14135, appendix B.
// Checked   against attentionBwd() in src/extensions/verify/reference/ops.ts by test/gpu/attention_bwd.test.ts. Printed by kernels/attention.ts.

${params(D, 'rows')}
@group(0) @binding(0) var<storage, read> q: array<Act>;
@group(0) @binding(1) var<storage, read> kv: array<Act>;
@group(0) @binding(2) var<storage, read> dout: array<vec4f>;
@group(0) @binding(3) var<storage, read> lse: array<f32>;
@group(0) @binding(4) var<storage, read> delta: array<f32>;
@group(0) @binding(5) var<storage, read> queryEnd: array<u32>;
@group(0) @binding(6) var<storage, read_write> dkv: array<vec4f>;
@group(0) @binding(7) var<uniform> params: Params;

${entry('K', R)}  let share = params.H / params.K; // query heads that read this key head
  let vHead = params.K * D4;

${indent(
  2,
  keys.map((r) => [
    `let j${r} = min(tile + ${r}u, params.N - 1u); let end${r} = queryEnd[j${r}];`,
    `let key${r} = j${r} * 2u * vHead + head * D4;`,
    each(n, (j) => `let k${r}_${j} = vec4f(kv[key${r} + ${j}u]);`),
    each(n, (j) => `let v${r}_${j} = vec4f(kv[key${r} + vHead + ${j}u]);`),
    each(n, (j) => `var dk${r}_${j} = vec4f(); var dv${r}_${j} = vec4f();`),
  ]),
)}
  let last = ${lastOf(keys)};

  // One loop over (row, query head), because two nested loops would keep every register alive through both.
  var row = tile;
  var h = head * share;
  while (row < last) {
    let at = (row * params.H + h) * D4;
    let lseRow = lse[row * params.H + h];
    let deltaRow = delta[row * params.H + h];
    ${each(n, (j) => `let q_${j} = vec4f(q[at + ${j}u]);`)}
    ${each(n, (j) => `let g_${j} = dout[at + ${j}u];`)}
${indent(
  4,
  keys.map((r) => [
    '{',
    ...[
      `let p = ${R > 1 ? `select(0.0, exp(${dot(`k${r}`, 'q', n)} * params.scale - lseRow), (row >= j${r}) & (row < end${r}))` : `exp(${dot(`k${r}`, 'q', n)} * params.scale - lseRow)`};`,
      `let ds = p * (${dot(`v${r}`, 'g', n)} - deltaRow) * params.scale;`,
      each(n, (j) => `dv${r}_${j} += p * g_${j}; dk${r}_${j} += ds * q_${j};`),
    ].map((l) => `  ${l}`),
    '}',
  ]),
)}
    let turn = h + 1u == (head + 1u) * share;
    row = select(row, row + 1u, turn);
    h = select(h + 1u, head * share, turn);
  }

${indent(
  2,
  keys.map((r) => [
    r === 0 ? '{' : `if (tile + ${r}u < params.N) {`,
    `  ${each(n, (j) => `dkv[key${r} + ${j}u] = dk${r}_${j}; dkv[key${r} + vHead + ${j}u] = dv${r}_${j};`)}`,
    '}',
  ]),
)}
}
`;
}

type Printer = (tile: AttentionTile) => string;
const printer =
  (block: Printer, shared: Printer, own: Printer): Printer =>
  (tile) =>
    (tile.block ? block : tile.lanes ? shared : own)(tile);

/** Returns the WGSL of the forward kernel. */
export const printAttention = printer(blockForward, sharedForward, forward);

/** Returns the WGSL of the backward kernel that computes dq and delta. */
export const printAttentionBwdQ = printer(blockBackwardQ, sharedBackwardQ, backwardQ);

/** Returns the WGSL of the backward kernel that computes the gradients of k and v. */
export const printAttentionBwdKv = printer(blockBackwardKV, sharedBackwardKV, backwardKV);
