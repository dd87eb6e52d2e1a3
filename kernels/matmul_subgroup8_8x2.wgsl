enable subgroups;

// Matrix product: y[m, n] = sum over k of a(m, k) * b(k, n), then + add, then + y[m, n] if asked.
//
//   a     any layout: a(m, k) = a[m * rowA + k * stepA]      NN, NT: rowA = K, stepA = 1    TN: rowA = 1, stepA = M
//   b     any layout: b(k, n) = b[k * stepB + n * colB]      NN, TN: stepB = N, colB = 1    NT: stepB = 1, colB = K
//   add   added = 1: bias [N];  added = 2: [M, N], the residual stream;  added = 0: any buffer
//   y     [M, N]; read first when accumulate = 1 (weight gradients). Not overrides: a large tile takes a software
//         adapter a second to compile, a branch an output nothing that shows
//         added = 3: b holds gate in its first N / 2 columns, up in the rest, and y [M, N / 2] = silu(gate) * up, the bits
//         of swiglu.wgsl after the product (arXiv:2002.05202); not onto halves; any add, accumulate = 0
//
// Grid      a subgroup computes 8 x (2 * subgroup size) outputs, 8 x 2 a thread, columns a stride of the subgroup size apart;
//           workgroups in a row, folded over x and y past 65535. Any M, K, N >= 1.
// Numerics  one thread sums each output over k in ascending order, s = s + a * b, from 0: the same bits whatever the
//           tile, M or the position in the batch. Printed by scripts/gen-matmul.mjs: edit scripts/lib/matmulTile.mjs.
// Checked   against a float64 product by test/gpu/matmul.test.ts.

struct Params {
  M: u32,      // rows of y
  N: u32,      // columns of y
  K: u32,      // summed over
  rowA: u32,   // a: from one m to the next
  stepA: u32,  // a: from one k to the next
  stepB: u32,  // b: from one k to the next
  colB: u32,   // b: from one n to the next
  added: u32,
  accumulate: u32,
}

override WG: u32 = 64u; // threads in a workgroup; a multiple of the subgroup size

alias A = f32; // each f16 where its buffer holds halves (src/gpu/halves.ts)
alias B = f32;
alias Y = f32;

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(2) var<storage, read> add: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<Y>;
@group(0) @binding(4) var<uniform> params: Params;

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
  let pairs = params.added == 3u;
  let width = select(params.N, params.N / 2u, pairs); // of y
  let own = select(2u, 1u, pairs); // columns of y a thread
  let across = (width + own * lanes - 1u) / (own * lanes); // tiles side by side
  // The second half of a thread's columns of b end at `last`; up's lie `shift` further on, which may wrap, and wraps back.
  let last = width - 1u + select(0u, 1u * lanes, pairs);
  let shift = select(0u, width - 1u * lanes, pairs);
  let row0 = tile / across * 8u;
  let col0 = tile % across * own * lanes + lane;
  // No early return: subgroupBroadcast needs every lane. Rows and columns past the end compute the last one again.

  var ia0 = min(row0 + 0u + lane % 8u, params.M - 1u) * params.rowA;
  var ib0 = min(col0, width - 1u) * params.colB;
  var ib1 = (min(col0 + 1u * lanes, last) + shift) * params.colB;
  var s0_0 = 0.0; var s0_1 = 0.0;
  var s1_0 = 0.0; var s1_1 = 0.0;
  var s2_0 = 0.0; var s2_1 = 0.0;
  var s3_0 = 0.0; var s3_1 = 0.0;
  var s4_0 = 0.0; var s4_1 = 0.0;
  var s5_0 = 0.0; var s5_1 = 0.0;
  var s6_0 = 0.0; var s6_1 = 0.0;
  var s7_0 = 0.0; var s7_1 = 0.0;

  var k = 0u;
  for (; k < params.K; k++) {
    let a0_0 = f32(a[ia0]);
    let b0_0 = f32(b[ib0]);
    let b1_0 = f32(b[ib1]);
    let x0_0 = subgroupBroadcast(a0_0, 0u);
    s0_0 = s0_0 + x0_0 * b0_0;
    s0_1 = s0_1 + x0_0 * b1_0;
    let x1_0 = subgroupBroadcast(a0_0, 1u);
    s1_0 = s1_0 + x1_0 * b0_0;
    s1_1 = s1_1 + x1_0 * b1_0;
    let x2_0 = subgroupBroadcast(a0_0, 2u);
    s2_0 = s2_0 + x2_0 * b0_0;
    s2_1 = s2_1 + x2_0 * b1_0;
    let x3_0 = subgroupBroadcast(a0_0, 3u);
    s3_0 = s3_0 + x3_0 * b0_0;
    s3_1 = s3_1 + x3_0 * b1_0;
    let x4_0 = subgroupBroadcast(a0_0, 4u);
    s4_0 = s4_0 + x4_0 * b0_0;
    s4_1 = s4_1 + x4_0 * b1_0;
    let x5_0 = subgroupBroadcast(a0_0, 5u);
    s5_0 = s5_0 + x5_0 * b0_0;
    s5_1 = s5_1 + x5_0 * b1_0;
    let x6_0 = subgroupBroadcast(a0_0, 6u);
    s6_0 = s6_0 + x6_0 * b0_0;
    s6_1 = s6_1 + x6_0 * b1_0;
    let x7_0 = subgroupBroadcast(a0_0, 7u);
    s7_0 = s7_0 + x7_0 * b0_0;
    s7_1 = s7_1 + x7_0 * b1_0;
    ia0 += params.stepA;
    ib0 += params.stepB; ib1 += params.stepB;
  }

  put(row0 + 0u, col0, width, s0_0, s0_1);
  put(row0 + 1u, col0, width, s1_0, s1_1);
  put(row0 + 2u, col0, width, s2_0, s2_1);
  put(row0 + 3u, col0, width, s3_0, s3_1);
  put(row0 + 4u, col0, width, s4_0, s4_1);
  put(row0 + 5u, col0, width, s5_0, s5_1);
  put(row0 + 6u, col0, width, s6_0, s6_1);
  put(row0 + 7u, col0, width, s7_0, s7_1);
  if (pairs) { return; }
  put(row0 + 0u, col0 + 1u * lanes, width, s0_1, 0.0);
  put(row0 + 1u, col0 + 1u * lanes, width, s1_1, 0.0);
  put(row0 + 2u, col0 + 1u * lanes, width, s2_1, 0.0);
  put(row0 + 3u, col0 + 1u * lanes, width, s3_1, 0.0);
  put(row0 + 4u, col0 + 1u * lanes, width, s4_1, 0.0);
  put(row0 + 5u, col0 + 1u * lanes, width, s5_1, 0.0);
  put(row0 + 6u, col0 + 1u * lanes, width, s6_1, 0.0);
  put(row0 + 7u, col0 + 1u * lanes, width, s7_1, 0.0);
}
