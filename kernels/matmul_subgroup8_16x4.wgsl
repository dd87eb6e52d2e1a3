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
// Grid      a subgroup computes 16 x (4 * subgroup size) outputs, 16 x 4 a thread, columns a stride of the subgroup size apart;
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
  let own = select(4u, 2u, pairs); // columns of y a thread
  let across = (width + own * lanes - 1u) / (own * lanes); // tiles side by side
  // The second half of a thread's columns of b end at `last`; up's lie `shift` further on, which may wrap, and wraps back.
  let last = width - 1u + select(0u, 2u * lanes, pairs);
  let shift = select(0u, width - 2u * lanes, pairs);
  let row0 = tile / across * 16u;
  let col0 = tile % across * own * lanes + lane;
  // No early return: subgroupBroadcast needs every lane. Rows and columns past the end compute the last one again.

  var ia0 = min(row0 + 0u + lane % 8u, params.M - 1u) * params.rowA;
  var ia1 = min(row0 + 8u + lane % 8u, params.M - 1u) * params.rowA;
  var ib0 = min(col0, width - 1u) * params.colB;
  var ib1 = min(col0 + 1u * lanes, width - 1u) * params.colB;
  var ib2 = (min(col0 + 2u * lanes, last) + shift) * params.colB;
  var ib3 = (min(col0 + 3u * lanes, last) + shift) * params.colB;
  var s0_0 = 0.0; var s0_1 = 0.0; var s0_2 = 0.0; var s0_3 = 0.0;
  var s1_0 = 0.0; var s1_1 = 0.0; var s1_2 = 0.0; var s1_3 = 0.0;
  var s2_0 = 0.0; var s2_1 = 0.0; var s2_2 = 0.0; var s2_3 = 0.0;
  var s3_0 = 0.0; var s3_1 = 0.0; var s3_2 = 0.0; var s3_3 = 0.0;
  var s4_0 = 0.0; var s4_1 = 0.0; var s4_2 = 0.0; var s4_3 = 0.0;
  var s5_0 = 0.0; var s5_1 = 0.0; var s5_2 = 0.0; var s5_3 = 0.0;
  var s6_0 = 0.0; var s6_1 = 0.0; var s6_2 = 0.0; var s6_3 = 0.0;
  var s7_0 = 0.0; var s7_1 = 0.0; var s7_2 = 0.0; var s7_3 = 0.0;
  var s8_0 = 0.0; var s8_1 = 0.0; var s8_2 = 0.0; var s8_3 = 0.0;
  var s9_0 = 0.0; var s9_1 = 0.0; var s9_2 = 0.0; var s9_3 = 0.0;
  var s10_0 = 0.0; var s10_1 = 0.0; var s10_2 = 0.0; var s10_3 = 0.0;
  var s11_0 = 0.0; var s11_1 = 0.0; var s11_2 = 0.0; var s11_3 = 0.0;
  var s12_0 = 0.0; var s12_1 = 0.0; var s12_2 = 0.0; var s12_3 = 0.0;
  var s13_0 = 0.0; var s13_1 = 0.0; var s13_2 = 0.0; var s13_3 = 0.0;
  var s14_0 = 0.0; var s14_1 = 0.0; var s14_2 = 0.0; var s14_3 = 0.0;
  var s15_0 = 0.0; var s15_1 = 0.0; var s15_2 = 0.0; var s15_3 = 0.0;

  var k = 0u;
  for (; k < params.K; k++) {
    let a0_0 = f32(a[ia0]);
    let a1_0 = f32(a[ia1]);
    let b0_0 = f32(b[ib0]);
    let b1_0 = f32(b[ib1]);
    let b2_0 = f32(b[ib2]);
    let b3_0 = f32(b[ib3]);
    let x0_0 = subgroupBroadcast(a0_0, 0u);
    s0_0 = s0_0 + x0_0 * b0_0;
    s0_1 = s0_1 + x0_0 * b1_0;
    s0_2 = s0_2 + x0_0 * b2_0;
    s0_3 = s0_3 + x0_0 * b3_0;
    let x1_0 = subgroupBroadcast(a0_0, 1u);
    s1_0 = s1_0 + x1_0 * b0_0;
    s1_1 = s1_1 + x1_0 * b1_0;
    s1_2 = s1_2 + x1_0 * b2_0;
    s1_3 = s1_3 + x1_0 * b3_0;
    let x2_0 = subgroupBroadcast(a0_0, 2u);
    s2_0 = s2_0 + x2_0 * b0_0;
    s2_1 = s2_1 + x2_0 * b1_0;
    s2_2 = s2_2 + x2_0 * b2_0;
    s2_3 = s2_3 + x2_0 * b3_0;
    let x3_0 = subgroupBroadcast(a0_0, 3u);
    s3_0 = s3_0 + x3_0 * b0_0;
    s3_1 = s3_1 + x3_0 * b1_0;
    s3_2 = s3_2 + x3_0 * b2_0;
    s3_3 = s3_3 + x3_0 * b3_0;
    let x4_0 = subgroupBroadcast(a0_0, 4u);
    s4_0 = s4_0 + x4_0 * b0_0;
    s4_1 = s4_1 + x4_0 * b1_0;
    s4_2 = s4_2 + x4_0 * b2_0;
    s4_3 = s4_3 + x4_0 * b3_0;
    let x5_0 = subgroupBroadcast(a0_0, 5u);
    s5_0 = s5_0 + x5_0 * b0_0;
    s5_1 = s5_1 + x5_0 * b1_0;
    s5_2 = s5_2 + x5_0 * b2_0;
    s5_3 = s5_3 + x5_0 * b3_0;
    let x6_0 = subgroupBroadcast(a0_0, 6u);
    s6_0 = s6_0 + x6_0 * b0_0;
    s6_1 = s6_1 + x6_0 * b1_0;
    s6_2 = s6_2 + x6_0 * b2_0;
    s6_3 = s6_3 + x6_0 * b3_0;
    let x7_0 = subgroupBroadcast(a0_0, 7u);
    s7_0 = s7_0 + x7_0 * b0_0;
    s7_1 = s7_1 + x7_0 * b1_0;
    s7_2 = s7_2 + x7_0 * b2_0;
    s7_3 = s7_3 + x7_0 * b3_0;
    let x8_0 = subgroupBroadcast(a1_0, 0u);
    s8_0 = s8_0 + x8_0 * b0_0;
    s8_1 = s8_1 + x8_0 * b1_0;
    s8_2 = s8_2 + x8_0 * b2_0;
    s8_3 = s8_3 + x8_0 * b3_0;
    let x9_0 = subgroupBroadcast(a1_0, 1u);
    s9_0 = s9_0 + x9_0 * b0_0;
    s9_1 = s9_1 + x9_0 * b1_0;
    s9_2 = s9_2 + x9_0 * b2_0;
    s9_3 = s9_3 + x9_0 * b3_0;
    let x10_0 = subgroupBroadcast(a1_0, 2u);
    s10_0 = s10_0 + x10_0 * b0_0;
    s10_1 = s10_1 + x10_0 * b1_0;
    s10_2 = s10_2 + x10_0 * b2_0;
    s10_3 = s10_3 + x10_0 * b3_0;
    let x11_0 = subgroupBroadcast(a1_0, 3u);
    s11_0 = s11_0 + x11_0 * b0_0;
    s11_1 = s11_1 + x11_0 * b1_0;
    s11_2 = s11_2 + x11_0 * b2_0;
    s11_3 = s11_3 + x11_0 * b3_0;
    let x12_0 = subgroupBroadcast(a1_0, 4u);
    s12_0 = s12_0 + x12_0 * b0_0;
    s12_1 = s12_1 + x12_0 * b1_0;
    s12_2 = s12_2 + x12_0 * b2_0;
    s12_3 = s12_3 + x12_0 * b3_0;
    let x13_0 = subgroupBroadcast(a1_0, 5u);
    s13_0 = s13_0 + x13_0 * b0_0;
    s13_1 = s13_1 + x13_0 * b1_0;
    s13_2 = s13_2 + x13_0 * b2_0;
    s13_3 = s13_3 + x13_0 * b3_0;
    let x14_0 = subgroupBroadcast(a1_0, 6u);
    s14_0 = s14_0 + x14_0 * b0_0;
    s14_1 = s14_1 + x14_0 * b1_0;
    s14_2 = s14_2 + x14_0 * b2_0;
    s14_3 = s14_3 + x14_0 * b3_0;
    let x15_0 = subgroupBroadcast(a1_0, 7u);
    s15_0 = s15_0 + x15_0 * b0_0;
    s15_1 = s15_1 + x15_0 * b1_0;
    s15_2 = s15_2 + x15_0 * b2_0;
    s15_3 = s15_3 + x15_0 * b3_0;
    ia0 += params.stepA; ia1 += params.stepA;
    ib0 += params.stepB; ib1 += params.stepB; ib2 += params.stepB; ib3 += params.stepB;
  }

  put(row0 + 0u, col0, width, s0_0, s0_2); put(row0 + 0u, col0 + 1u * lanes, width, s0_1, s0_3);
  put(row0 + 1u, col0, width, s1_0, s1_2); put(row0 + 1u, col0 + 1u * lanes, width, s1_1, s1_3);
  put(row0 + 2u, col0, width, s2_0, s2_2); put(row0 + 2u, col0 + 1u * lanes, width, s2_1, s2_3);
  put(row0 + 3u, col0, width, s3_0, s3_2); put(row0 + 3u, col0 + 1u * lanes, width, s3_1, s3_3);
  put(row0 + 4u, col0, width, s4_0, s4_2); put(row0 + 4u, col0 + 1u * lanes, width, s4_1, s4_3);
  put(row0 + 5u, col0, width, s5_0, s5_2); put(row0 + 5u, col0 + 1u * lanes, width, s5_1, s5_3);
  put(row0 + 6u, col0, width, s6_0, s6_2); put(row0 + 6u, col0 + 1u * lanes, width, s6_1, s6_3);
  put(row0 + 7u, col0, width, s7_0, s7_2); put(row0 + 7u, col0 + 1u * lanes, width, s7_1, s7_3);
  put(row0 + 8u, col0, width, s8_0, s8_2); put(row0 + 8u, col0 + 1u * lanes, width, s8_1, s8_3);
  put(row0 + 9u, col0, width, s9_0, s9_2); put(row0 + 9u, col0 + 1u * lanes, width, s9_1, s9_3);
  put(row0 + 10u, col0, width, s10_0, s10_2); put(row0 + 10u, col0 + 1u * lanes, width, s10_1, s10_3);
  put(row0 + 11u, col0, width, s11_0, s11_2); put(row0 + 11u, col0 + 1u * lanes, width, s11_1, s11_3);
  put(row0 + 12u, col0, width, s12_0, s12_2); put(row0 + 12u, col0 + 1u * lanes, width, s12_1, s12_3);
  put(row0 + 13u, col0, width, s13_0, s13_2); put(row0 + 13u, col0 + 1u * lanes, width, s13_1, s13_3);
  put(row0 + 14u, col0, width, s14_0, s14_2); put(row0 + 14u, col0 + 1u * lanes, width, s14_1, s14_3);
  put(row0 + 15u, col0, width, s15_0, s15_2); put(row0 + 15u, col0 + 1u * lanes, width, s15_1, s15_3);
  if (pairs) { return; }
  put(row0 + 0u, col0 + 2u * lanes, width, s0_2, 0.0); put(row0 + 0u, col0 + 3u * lanes, width, s0_3, 0.0);
  put(row0 + 1u, col0 + 2u * lanes, width, s1_2, 0.0); put(row0 + 1u, col0 + 3u * lanes, width, s1_3, 0.0);
  put(row0 + 2u, col0 + 2u * lanes, width, s2_2, 0.0); put(row0 + 2u, col0 + 3u * lanes, width, s2_3, 0.0);
  put(row0 + 3u, col0 + 2u * lanes, width, s3_2, 0.0); put(row0 + 3u, col0 + 3u * lanes, width, s3_3, 0.0);
  put(row0 + 4u, col0 + 2u * lanes, width, s4_2, 0.0); put(row0 + 4u, col0 + 3u * lanes, width, s4_3, 0.0);
  put(row0 + 5u, col0 + 2u * lanes, width, s5_2, 0.0); put(row0 + 5u, col0 + 3u * lanes, width, s5_3, 0.0);
  put(row0 + 6u, col0 + 2u * lanes, width, s6_2, 0.0); put(row0 + 6u, col0 + 3u * lanes, width, s6_3, 0.0);
  put(row0 + 7u, col0 + 2u * lanes, width, s7_2, 0.0); put(row0 + 7u, col0 + 3u * lanes, width, s7_3, 0.0);
  put(row0 + 8u, col0 + 2u * lanes, width, s8_2, 0.0); put(row0 + 8u, col0 + 3u * lanes, width, s8_3, 0.0);
  put(row0 + 9u, col0 + 2u * lanes, width, s9_2, 0.0); put(row0 + 9u, col0 + 3u * lanes, width, s9_3, 0.0);
  put(row0 + 10u, col0 + 2u * lanes, width, s10_2, 0.0); put(row0 + 10u, col0 + 3u * lanes, width, s10_3, 0.0);
  put(row0 + 11u, col0 + 2u * lanes, width, s11_2, 0.0); put(row0 + 11u, col0 + 3u * lanes, width, s11_3, 0.0);
  put(row0 + 12u, col0 + 2u * lanes, width, s12_2, 0.0); put(row0 + 12u, col0 + 3u * lanes, width, s12_3, 0.0);
  put(row0 + 13u, col0 + 2u * lanes, width, s13_2, 0.0); put(row0 + 13u, col0 + 3u * lanes, width, s13_3, 0.0);
  put(row0 + 14u, col0 + 2u * lanes, width, s14_2, 0.0); put(row0 + 14u, col0 + 3u * lanes, width, s14_3, 0.0);
  put(row0 + 15u, col0 + 2u * lanes, width, s15_2, 0.0); put(row0 + 15u, col0 + 3u * lanes, width, s15_3, 0.0);
}
