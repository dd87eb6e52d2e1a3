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
// Grid      a subgroup computes 32 x (8 * subgroup size) outputs, 32 x 8 a thread, columns a stride of the subgroup size apart;
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

override WG: u32 = 8u; // threads in a workgroup; a multiple of the subgroup size

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
  let own = select(8u, 4u, pairs); // columns of y a thread
  let across = (width + own * lanes - 1u) / (own * lanes); // tiles side by side
  // The second half of a thread's columns of b end at `last`; up's lie `shift` further on, which may wrap, and wraps back.
  let last = width - 1u + select(0u, 4u * lanes, pairs);
  let shift = select(0u, width - 4u * lanes, pairs);
  let row0 = tile / across * 32u;
  let col0 = tile % across * own * lanes + lane;
  // No early return: subgroupBroadcast needs every lane. Rows and columns past the end compute the last one again.

  var ia0 = min(row0 + 0u + lane % 8u, params.M - 1u) * params.rowA;
  var ia1 = min(row0 + 8u + lane % 8u, params.M - 1u) * params.rowA;
  var ia2 = min(row0 + 16u + lane % 8u, params.M - 1u) * params.rowA;
  var ia3 = min(row0 + 24u + lane % 8u, params.M - 1u) * params.rowA;
  var ib0 = min(col0, width - 1u) * params.colB;
  var ib1 = min(col0 + 1u * lanes, width - 1u) * params.colB;
  var ib2 = min(col0 + 2u * lanes, width - 1u) * params.colB;
  var ib3 = min(col0 + 3u * lanes, width - 1u) * params.colB;
  var ib4 = (min(col0 + 4u * lanes, last) + shift) * params.colB;
  var ib5 = (min(col0 + 5u * lanes, last) + shift) * params.colB;
  var ib6 = (min(col0 + 6u * lanes, last) + shift) * params.colB;
  var ib7 = (min(col0 + 7u * lanes, last) + shift) * params.colB;
  var s0_0 = 0.0; var s0_1 = 0.0; var s0_2 = 0.0; var s0_3 = 0.0; var s0_4 = 0.0; var s0_5 = 0.0; var s0_6 = 0.0; var s0_7 = 0.0;
  var s1_0 = 0.0; var s1_1 = 0.0; var s1_2 = 0.0; var s1_3 = 0.0; var s1_4 = 0.0; var s1_5 = 0.0; var s1_6 = 0.0; var s1_7 = 0.0;
  var s2_0 = 0.0; var s2_1 = 0.0; var s2_2 = 0.0; var s2_3 = 0.0; var s2_4 = 0.0; var s2_5 = 0.0; var s2_6 = 0.0; var s2_7 = 0.0;
  var s3_0 = 0.0; var s3_1 = 0.0; var s3_2 = 0.0; var s3_3 = 0.0; var s3_4 = 0.0; var s3_5 = 0.0; var s3_6 = 0.0; var s3_7 = 0.0;
  var s4_0 = 0.0; var s4_1 = 0.0; var s4_2 = 0.0; var s4_3 = 0.0; var s4_4 = 0.0; var s4_5 = 0.0; var s4_6 = 0.0; var s4_7 = 0.0;
  var s5_0 = 0.0; var s5_1 = 0.0; var s5_2 = 0.0; var s5_3 = 0.0; var s5_4 = 0.0; var s5_5 = 0.0; var s5_6 = 0.0; var s5_7 = 0.0;
  var s6_0 = 0.0; var s6_1 = 0.0; var s6_2 = 0.0; var s6_3 = 0.0; var s6_4 = 0.0; var s6_5 = 0.0; var s6_6 = 0.0; var s6_7 = 0.0;
  var s7_0 = 0.0; var s7_1 = 0.0; var s7_2 = 0.0; var s7_3 = 0.0; var s7_4 = 0.0; var s7_5 = 0.0; var s7_6 = 0.0; var s7_7 = 0.0;
  var s8_0 = 0.0; var s8_1 = 0.0; var s8_2 = 0.0; var s8_3 = 0.0; var s8_4 = 0.0; var s8_5 = 0.0; var s8_6 = 0.0; var s8_7 = 0.0;
  var s9_0 = 0.0; var s9_1 = 0.0; var s9_2 = 0.0; var s9_3 = 0.0; var s9_4 = 0.0; var s9_5 = 0.0; var s9_6 = 0.0; var s9_7 = 0.0;
  var s10_0 = 0.0; var s10_1 = 0.0; var s10_2 = 0.0; var s10_3 = 0.0; var s10_4 = 0.0; var s10_5 = 0.0; var s10_6 = 0.0; var s10_7 = 0.0;
  var s11_0 = 0.0; var s11_1 = 0.0; var s11_2 = 0.0; var s11_3 = 0.0; var s11_4 = 0.0; var s11_5 = 0.0; var s11_6 = 0.0; var s11_7 = 0.0;
  var s12_0 = 0.0; var s12_1 = 0.0; var s12_2 = 0.0; var s12_3 = 0.0; var s12_4 = 0.0; var s12_5 = 0.0; var s12_6 = 0.0; var s12_7 = 0.0;
  var s13_0 = 0.0; var s13_1 = 0.0; var s13_2 = 0.0; var s13_3 = 0.0; var s13_4 = 0.0; var s13_5 = 0.0; var s13_6 = 0.0; var s13_7 = 0.0;
  var s14_0 = 0.0; var s14_1 = 0.0; var s14_2 = 0.0; var s14_3 = 0.0; var s14_4 = 0.0; var s14_5 = 0.0; var s14_6 = 0.0; var s14_7 = 0.0;
  var s15_0 = 0.0; var s15_1 = 0.0; var s15_2 = 0.0; var s15_3 = 0.0; var s15_4 = 0.0; var s15_5 = 0.0; var s15_6 = 0.0; var s15_7 = 0.0;
  var s16_0 = 0.0; var s16_1 = 0.0; var s16_2 = 0.0; var s16_3 = 0.0; var s16_4 = 0.0; var s16_5 = 0.0; var s16_6 = 0.0; var s16_7 = 0.0;
  var s17_0 = 0.0; var s17_1 = 0.0; var s17_2 = 0.0; var s17_3 = 0.0; var s17_4 = 0.0; var s17_5 = 0.0; var s17_6 = 0.0; var s17_7 = 0.0;
  var s18_0 = 0.0; var s18_1 = 0.0; var s18_2 = 0.0; var s18_3 = 0.0; var s18_4 = 0.0; var s18_5 = 0.0; var s18_6 = 0.0; var s18_7 = 0.0;
  var s19_0 = 0.0; var s19_1 = 0.0; var s19_2 = 0.0; var s19_3 = 0.0; var s19_4 = 0.0; var s19_5 = 0.0; var s19_6 = 0.0; var s19_7 = 0.0;
  var s20_0 = 0.0; var s20_1 = 0.0; var s20_2 = 0.0; var s20_3 = 0.0; var s20_4 = 0.0; var s20_5 = 0.0; var s20_6 = 0.0; var s20_7 = 0.0;
  var s21_0 = 0.0; var s21_1 = 0.0; var s21_2 = 0.0; var s21_3 = 0.0; var s21_4 = 0.0; var s21_5 = 0.0; var s21_6 = 0.0; var s21_7 = 0.0;
  var s22_0 = 0.0; var s22_1 = 0.0; var s22_2 = 0.0; var s22_3 = 0.0; var s22_4 = 0.0; var s22_5 = 0.0; var s22_6 = 0.0; var s22_7 = 0.0;
  var s23_0 = 0.0; var s23_1 = 0.0; var s23_2 = 0.0; var s23_3 = 0.0; var s23_4 = 0.0; var s23_5 = 0.0; var s23_6 = 0.0; var s23_7 = 0.0;
  var s24_0 = 0.0; var s24_1 = 0.0; var s24_2 = 0.0; var s24_3 = 0.0; var s24_4 = 0.0; var s24_5 = 0.0; var s24_6 = 0.0; var s24_7 = 0.0;
  var s25_0 = 0.0; var s25_1 = 0.0; var s25_2 = 0.0; var s25_3 = 0.0; var s25_4 = 0.0; var s25_5 = 0.0; var s25_6 = 0.0; var s25_7 = 0.0;
  var s26_0 = 0.0; var s26_1 = 0.0; var s26_2 = 0.0; var s26_3 = 0.0; var s26_4 = 0.0; var s26_5 = 0.0; var s26_6 = 0.0; var s26_7 = 0.0;
  var s27_0 = 0.0; var s27_1 = 0.0; var s27_2 = 0.0; var s27_3 = 0.0; var s27_4 = 0.0; var s27_5 = 0.0; var s27_6 = 0.0; var s27_7 = 0.0;
  var s28_0 = 0.0; var s28_1 = 0.0; var s28_2 = 0.0; var s28_3 = 0.0; var s28_4 = 0.0; var s28_5 = 0.0; var s28_6 = 0.0; var s28_7 = 0.0;
  var s29_0 = 0.0; var s29_1 = 0.0; var s29_2 = 0.0; var s29_3 = 0.0; var s29_4 = 0.0; var s29_5 = 0.0; var s29_6 = 0.0; var s29_7 = 0.0;
  var s30_0 = 0.0; var s30_1 = 0.0; var s30_2 = 0.0; var s30_3 = 0.0; var s30_4 = 0.0; var s30_5 = 0.0; var s30_6 = 0.0; var s30_7 = 0.0;
  var s31_0 = 0.0; var s31_1 = 0.0; var s31_2 = 0.0; var s31_3 = 0.0; var s31_4 = 0.0; var s31_5 = 0.0; var s31_6 = 0.0; var s31_7 = 0.0;

  var k = 0u;
  for (; k + 1u < params.K; k += 2u) {
    let a0_0 = f32(a[ia0]);
    let a1_0 = f32(a[ia1]);
    let a2_0 = f32(a[ia2]);
    let a3_0 = f32(a[ia3]);
    let b0_0 = f32(b[ib0]);
    let b1_0 = f32(b[ib1]);
    let b2_0 = f32(b[ib2]);
    let b3_0 = f32(b[ib3]);
    let b4_0 = f32(b[ib4]);
    let b5_0 = f32(b[ib5]);
    let b6_0 = f32(b[ib6]);
    let b7_0 = f32(b[ib7]);
    let a0_1 = f32(a[ia0 + 1u * params.stepA]);
    let a1_1 = f32(a[ia1 + 1u * params.stepA]);
    let a2_1 = f32(a[ia2 + 1u * params.stepA]);
    let a3_1 = f32(a[ia3 + 1u * params.stepA]);
    let b0_1 = f32(b[ib0 + 1u * params.stepB]);
    let b1_1 = f32(b[ib1 + 1u * params.stepB]);
    let b2_1 = f32(b[ib2 + 1u * params.stepB]);
    let b3_1 = f32(b[ib3 + 1u * params.stepB]);
    let b4_1 = f32(b[ib4 + 1u * params.stepB]);
    let b5_1 = f32(b[ib5 + 1u * params.stepB]);
    let b6_1 = f32(b[ib6 + 1u * params.stepB]);
    let b7_1 = f32(b[ib7 + 1u * params.stepB]);
    let x0_0 = subgroupBroadcast(a0_0, 0u); let x0_1 = subgroupBroadcast(a0_1, 0u);
    s0_0 = s0_0 + x0_0 * b0_0 + x0_1 * b0_1;
    s0_1 = s0_1 + x0_0 * b1_0 + x0_1 * b1_1;
    s0_2 = s0_2 + x0_0 * b2_0 + x0_1 * b2_1;
    s0_3 = s0_3 + x0_0 * b3_0 + x0_1 * b3_1;
    s0_4 = s0_4 + x0_0 * b4_0 + x0_1 * b4_1;
    s0_5 = s0_5 + x0_0 * b5_0 + x0_1 * b5_1;
    s0_6 = s0_6 + x0_0 * b6_0 + x0_1 * b6_1;
    s0_7 = s0_7 + x0_0 * b7_0 + x0_1 * b7_1;
    let x1_0 = subgroupBroadcast(a0_0, 1u); let x1_1 = subgroupBroadcast(a0_1, 1u);
    s1_0 = s1_0 + x1_0 * b0_0 + x1_1 * b0_1;
    s1_1 = s1_1 + x1_0 * b1_0 + x1_1 * b1_1;
    s1_2 = s1_2 + x1_0 * b2_0 + x1_1 * b2_1;
    s1_3 = s1_3 + x1_0 * b3_0 + x1_1 * b3_1;
    s1_4 = s1_4 + x1_0 * b4_0 + x1_1 * b4_1;
    s1_5 = s1_5 + x1_0 * b5_0 + x1_1 * b5_1;
    s1_6 = s1_6 + x1_0 * b6_0 + x1_1 * b6_1;
    s1_7 = s1_7 + x1_0 * b7_0 + x1_1 * b7_1;
    let x2_0 = subgroupBroadcast(a0_0, 2u); let x2_1 = subgroupBroadcast(a0_1, 2u);
    s2_0 = s2_0 + x2_0 * b0_0 + x2_1 * b0_1;
    s2_1 = s2_1 + x2_0 * b1_0 + x2_1 * b1_1;
    s2_2 = s2_2 + x2_0 * b2_0 + x2_1 * b2_1;
    s2_3 = s2_3 + x2_0 * b3_0 + x2_1 * b3_1;
    s2_4 = s2_4 + x2_0 * b4_0 + x2_1 * b4_1;
    s2_5 = s2_5 + x2_0 * b5_0 + x2_1 * b5_1;
    s2_6 = s2_6 + x2_0 * b6_0 + x2_1 * b6_1;
    s2_7 = s2_7 + x2_0 * b7_0 + x2_1 * b7_1;
    let x3_0 = subgroupBroadcast(a0_0, 3u); let x3_1 = subgroupBroadcast(a0_1, 3u);
    s3_0 = s3_0 + x3_0 * b0_0 + x3_1 * b0_1;
    s3_1 = s3_1 + x3_0 * b1_0 + x3_1 * b1_1;
    s3_2 = s3_2 + x3_0 * b2_0 + x3_1 * b2_1;
    s3_3 = s3_3 + x3_0 * b3_0 + x3_1 * b3_1;
    s3_4 = s3_4 + x3_0 * b4_0 + x3_1 * b4_1;
    s3_5 = s3_5 + x3_0 * b5_0 + x3_1 * b5_1;
    s3_6 = s3_6 + x3_0 * b6_0 + x3_1 * b6_1;
    s3_7 = s3_7 + x3_0 * b7_0 + x3_1 * b7_1;
    let x4_0 = subgroupBroadcast(a0_0, 4u); let x4_1 = subgroupBroadcast(a0_1, 4u);
    s4_0 = s4_0 + x4_0 * b0_0 + x4_1 * b0_1;
    s4_1 = s4_1 + x4_0 * b1_0 + x4_1 * b1_1;
    s4_2 = s4_2 + x4_0 * b2_0 + x4_1 * b2_1;
    s4_3 = s4_3 + x4_0 * b3_0 + x4_1 * b3_1;
    s4_4 = s4_4 + x4_0 * b4_0 + x4_1 * b4_1;
    s4_5 = s4_5 + x4_0 * b5_0 + x4_1 * b5_1;
    s4_6 = s4_6 + x4_0 * b6_0 + x4_1 * b6_1;
    s4_7 = s4_7 + x4_0 * b7_0 + x4_1 * b7_1;
    let x5_0 = subgroupBroadcast(a0_0, 5u); let x5_1 = subgroupBroadcast(a0_1, 5u);
    s5_0 = s5_0 + x5_0 * b0_0 + x5_1 * b0_1;
    s5_1 = s5_1 + x5_0 * b1_0 + x5_1 * b1_1;
    s5_2 = s5_2 + x5_0 * b2_0 + x5_1 * b2_1;
    s5_3 = s5_3 + x5_0 * b3_0 + x5_1 * b3_1;
    s5_4 = s5_4 + x5_0 * b4_0 + x5_1 * b4_1;
    s5_5 = s5_5 + x5_0 * b5_0 + x5_1 * b5_1;
    s5_6 = s5_6 + x5_0 * b6_0 + x5_1 * b6_1;
    s5_7 = s5_7 + x5_0 * b7_0 + x5_1 * b7_1;
    let x6_0 = subgroupBroadcast(a0_0, 6u); let x6_1 = subgroupBroadcast(a0_1, 6u);
    s6_0 = s6_0 + x6_0 * b0_0 + x6_1 * b0_1;
    s6_1 = s6_1 + x6_0 * b1_0 + x6_1 * b1_1;
    s6_2 = s6_2 + x6_0 * b2_0 + x6_1 * b2_1;
    s6_3 = s6_3 + x6_0 * b3_0 + x6_1 * b3_1;
    s6_4 = s6_4 + x6_0 * b4_0 + x6_1 * b4_1;
    s6_5 = s6_5 + x6_0 * b5_0 + x6_1 * b5_1;
    s6_6 = s6_6 + x6_0 * b6_0 + x6_1 * b6_1;
    s6_7 = s6_7 + x6_0 * b7_0 + x6_1 * b7_1;
    let x7_0 = subgroupBroadcast(a0_0, 7u); let x7_1 = subgroupBroadcast(a0_1, 7u);
    s7_0 = s7_0 + x7_0 * b0_0 + x7_1 * b0_1;
    s7_1 = s7_1 + x7_0 * b1_0 + x7_1 * b1_1;
    s7_2 = s7_2 + x7_0 * b2_0 + x7_1 * b2_1;
    s7_3 = s7_3 + x7_0 * b3_0 + x7_1 * b3_1;
    s7_4 = s7_4 + x7_0 * b4_0 + x7_1 * b4_1;
    s7_5 = s7_5 + x7_0 * b5_0 + x7_1 * b5_1;
    s7_6 = s7_6 + x7_0 * b6_0 + x7_1 * b6_1;
    s7_7 = s7_7 + x7_0 * b7_0 + x7_1 * b7_1;
    let x8_0 = subgroupBroadcast(a1_0, 0u); let x8_1 = subgroupBroadcast(a1_1, 0u);
    s8_0 = s8_0 + x8_0 * b0_0 + x8_1 * b0_1;
    s8_1 = s8_1 + x8_0 * b1_0 + x8_1 * b1_1;
    s8_2 = s8_2 + x8_0 * b2_0 + x8_1 * b2_1;
    s8_3 = s8_3 + x8_0 * b3_0 + x8_1 * b3_1;
    s8_4 = s8_4 + x8_0 * b4_0 + x8_1 * b4_1;
    s8_5 = s8_5 + x8_0 * b5_0 + x8_1 * b5_1;
    s8_6 = s8_6 + x8_0 * b6_0 + x8_1 * b6_1;
    s8_7 = s8_7 + x8_0 * b7_0 + x8_1 * b7_1;
    let x9_0 = subgroupBroadcast(a1_0, 1u); let x9_1 = subgroupBroadcast(a1_1, 1u);
    s9_0 = s9_0 + x9_0 * b0_0 + x9_1 * b0_1;
    s9_1 = s9_1 + x9_0 * b1_0 + x9_1 * b1_1;
    s9_2 = s9_2 + x9_0 * b2_0 + x9_1 * b2_1;
    s9_3 = s9_3 + x9_0 * b3_0 + x9_1 * b3_1;
    s9_4 = s9_4 + x9_0 * b4_0 + x9_1 * b4_1;
    s9_5 = s9_5 + x9_0 * b5_0 + x9_1 * b5_1;
    s9_6 = s9_6 + x9_0 * b6_0 + x9_1 * b6_1;
    s9_7 = s9_7 + x9_0 * b7_0 + x9_1 * b7_1;
    let x10_0 = subgroupBroadcast(a1_0, 2u); let x10_1 = subgroupBroadcast(a1_1, 2u);
    s10_0 = s10_0 + x10_0 * b0_0 + x10_1 * b0_1;
    s10_1 = s10_1 + x10_0 * b1_0 + x10_1 * b1_1;
    s10_2 = s10_2 + x10_0 * b2_0 + x10_1 * b2_1;
    s10_3 = s10_3 + x10_0 * b3_0 + x10_1 * b3_1;
    s10_4 = s10_4 + x10_0 * b4_0 + x10_1 * b4_1;
    s10_5 = s10_5 + x10_0 * b5_0 + x10_1 * b5_1;
    s10_6 = s10_6 + x10_0 * b6_0 + x10_1 * b6_1;
    s10_7 = s10_7 + x10_0 * b7_0 + x10_1 * b7_1;
    let x11_0 = subgroupBroadcast(a1_0, 3u); let x11_1 = subgroupBroadcast(a1_1, 3u);
    s11_0 = s11_0 + x11_0 * b0_0 + x11_1 * b0_1;
    s11_1 = s11_1 + x11_0 * b1_0 + x11_1 * b1_1;
    s11_2 = s11_2 + x11_0 * b2_0 + x11_1 * b2_1;
    s11_3 = s11_3 + x11_0 * b3_0 + x11_1 * b3_1;
    s11_4 = s11_4 + x11_0 * b4_0 + x11_1 * b4_1;
    s11_5 = s11_5 + x11_0 * b5_0 + x11_1 * b5_1;
    s11_6 = s11_6 + x11_0 * b6_0 + x11_1 * b6_1;
    s11_7 = s11_7 + x11_0 * b7_0 + x11_1 * b7_1;
    let x12_0 = subgroupBroadcast(a1_0, 4u); let x12_1 = subgroupBroadcast(a1_1, 4u);
    s12_0 = s12_0 + x12_0 * b0_0 + x12_1 * b0_1;
    s12_1 = s12_1 + x12_0 * b1_0 + x12_1 * b1_1;
    s12_2 = s12_2 + x12_0 * b2_0 + x12_1 * b2_1;
    s12_3 = s12_3 + x12_0 * b3_0 + x12_1 * b3_1;
    s12_4 = s12_4 + x12_0 * b4_0 + x12_1 * b4_1;
    s12_5 = s12_5 + x12_0 * b5_0 + x12_1 * b5_1;
    s12_6 = s12_6 + x12_0 * b6_0 + x12_1 * b6_1;
    s12_7 = s12_7 + x12_0 * b7_0 + x12_1 * b7_1;
    let x13_0 = subgroupBroadcast(a1_0, 5u); let x13_1 = subgroupBroadcast(a1_1, 5u);
    s13_0 = s13_0 + x13_0 * b0_0 + x13_1 * b0_1;
    s13_1 = s13_1 + x13_0 * b1_0 + x13_1 * b1_1;
    s13_2 = s13_2 + x13_0 * b2_0 + x13_1 * b2_1;
    s13_3 = s13_3 + x13_0 * b3_0 + x13_1 * b3_1;
    s13_4 = s13_4 + x13_0 * b4_0 + x13_1 * b4_1;
    s13_5 = s13_5 + x13_0 * b5_0 + x13_1 * b5_1;
    s13_6 = s13_6 + x13_0 * b6_0 + x13_1 * b6_1;
    s13_7 = s13_7 + x13_0 * b7_0 + x13_1 * b7_1;
    let x14_0 = subgroupBroadcast(a1_0, 6u); let x14_1 = subgroupBroadcast(a1_1, 6u);
    s14_0 = s14_0 + x14_0 * b0_0 + x14_1 * b0_1;
    s14_1 = s14_1 + x14_0 * b1_0 + x14_1 * b1_1;
    s14_2 = s14_2 + x14_0 * b2_0 + x14_1 * b2_1;
    s14_3 = s14_3 + x14_0 * b3_0 + x14_1 * b3_1;
    s14_4 = s14_4 + x14_0 * b4_0 + x14_1 * b4_1;
    s14_5 = s14_5 + x14_0 * b5_0 + x14_1 * b5_1;
    s14_6 = s14_6 + x14_0 * b6_0 + x14_1 * b6_1;
    s14_7 = s14_7 + x14_0 * b7_0 + x14_1 * b7_1;
    let x15_0 = subgroupBroadcast(a1_0, 7u); let x15_1 = subgroupBroadcast(a1_1, 7u);
    s15_0 = s15_0 + x15_0 * b0_0 + x15_1 * b0_1;
    s15_1 = s15_1 + x15_0 * b1_0 + x15_1 * b1_1;
    s15_2 = s15_2 + x15_0 * b2_0 + x15_1 * b2_1;
    s15_3 = s15_3 + x15_0 * b3_0 + x15_1 * b3_1;
    s15_4 = s15_4 + x15_0 * b4_0 + x15_1 * b4_1;
    s15_5 = s15_5 + x15_0 * b5_0 + x15_1 * b5_1;
    s15_6 = s15_6 + x15_0 * b6_0 + x15_1 * b6_1;
    s15_7 = s15_7 + x15_0 * b7_0 + x15_1 * b7_1;
    let x16_0 = subgroupBroadcast(a2_0, 0u); let x16_1 = subgroupBroadcast(a2_1, 0u);
    s16_0 = s16_0 + x16_0 * b0_0 + x16_1 * b0_1;
    s16_1 = s16_1 + x16_0 * b1_0 + x16_1 * b1_1;
    s16_2 = s16_2 + x16_0 * b2_0 + x16_1 * b2_1;
    s16_3 = s16_3 + x16_0 * b3_0 + x16_1 * b3_1;
    s16_4 = s16_4 + x16_0 * b4_0 + x16_1 * b4_1;
    s16_5 = s16_5 + x16_0 * b5_0 + x16_1 * b5_1;
    s16_6 = s16_6 + x16_0 * b6_0 + x16_1 * b6_1;
    s16_7 = s16_7 + x16_0 * b7_0 + x16_1 * b7_1;
    let x17_0 = subgroupBroadcast(a2_0, 1u); let x17_1 = subgroupBroadcast(a2_1, 1u);
    s17_0 = s17_0 + x17_0 * b0_0 + x17_1 * b0_1;
    s17_1 = s17_1 + x17_0 * b1_0 + x17_1 * b1_1;
    s17_2 = s17_2 + x17_0 * b2_0 + x17_1 * b2_1;
    s17_3 = s17_3 + x17_0 * b3_0 + x17_1 * b3_1;
    s17_4 = s17_4 + x17_0 * b4_0 + x17_1 * b4_1;
    s17_5 = s17_5 + x17_0 * b5_0 + x17_1 * b5_1;
    s17_6 = s17_6 + x17_0 * b6_0 + x17_1 * b6_1;
    s17_7 = s17_7 + x17_0 * b7_0 + x17_1 * b7_1;
    let x18_0 = subgroupBroadcast(a2_0, 2u); let x18_1 = subgroupBroadcast(a2_1, 2u);
    s18_0 = s18_0 + x18_0 * b0_0 + x18_1 * b0_1;
    s18_1 = s18_1 + x18_0 * b1_0 + x18_1 * b1_1;
    s18_2 = s18_2 + x18_0 * b2_0 + x18_1 * b2_1;
    s18_3 = s18_3 + x18_0 * b3_0 + x18_1 * b3_1;
    s18_4 = s18_4 + x18_0 * b4_0 + x18_1 * b4_1;
    s18_5 = s18_5 + x18_0 * b5_0 + x18_1 * b5_1;
    s18_6 = s18_6 + x18_0 * b6_0 + x18_1 * b6_1;
    s18_7 = s18_7 + x18_0 * b7_0 + x18_1 * b7_1;
    let x19_0 = subgroupBroadcast(a2_0, 3u); let x19_1 = subgroupBroadcast(a2_1, 3u);
    s19_0 = s19_0 + x19_0 * b0_0 + x19_1 * b0_1;
    s19_1 = s19_1 + x19_0 * b1_0 + x19_1 * b1_1;
    s19_2 = s19_2 + x19_0 * b2_0 + x19_1 * b2_1;
    s19_3 = s19_3 + x19_0 * b3_0 + x19_1 * b3_1;
    s19_4 = s19_4 + x19_0 * b4_0 + x19_1 * b4_1;
    s19_5 = s19_5 + x19_0 * b5_0 + x19_1 * b5_1;
    s19_6 = s19_6 + x19_0 * b6_0 + x19_1 * b6_1;
    s19_7 = s19_7 + x19_0 * b7_0 + x19_1 * b7_1;
    let x20_0 = subgroupBroadcast(a2_0, 4u); let x20_1 = subgroupBroadcast(a2_1, 4u);
    s20_0 = s20_0 + x20_0 * b0_0 + x20_1 * b0_1;
    s20_1 = s20_1 + x20_0 * b1_0 + x20_1 * b1_1;
    s20_2 = s20_2 + x20_0 * b2_0 + x20_1 * b2_1;
    s20_3 = s20_3 + x20_0 * b3_0 + x20_1 * b3_1;
    s20_4 = s20_4 + x20_0 * b4_0 + x20_1 * b4_1;
    s20_5 = s20_5 + x20_0 * b5_0 + x20_1 * b5_1;
    s20_6 = s20_6 + x20_0 * b6_0 + x20_1 * b6_1;
    s20_7 = s20_7 + x20_0 * b7_0 + x20_1 * b7_1;
    let x21_0 = subgroupBroadcast(a2_0, 5u); let x21_1 = subgroupBroadcast(a2_1, 5u);
    s21_0 = s21_0 + x21_0 * b0_0 + x21_1 * b0_1;
    s21_1 = s21_1 + x21_0 * b1_0 + x21_1 * b1_1;
    s21_2 = s21_2 + x21_0 * b2_0 + x21_1 * b2_1;
    s21_3 = s21_3 + x21_0 * b3_0 + x21_1 * b3_1;
    s21_4 = s21_4 + x21_0 * b4_0 + x21_1 * b4_1;
    s21_5 = s21_5 + x21_0 * b5_0 + x21_1 * b5_1;
    s21_6 = s21_6 + x21_0 * b6_0 + x21_1 * b6_1;
    s21_7 = s21_7 + x21_0 * b7_0 + x21_1 * b7_1;
    let x22_0 = subgroupBroadcast(a2_0, 6u); let x22_1 = subgroupBroadcast(a2_1, 6u);
    s22_0 = s22_0 + x22_0 * b0_0 + x22_1 * b0_1;
    s22_1 = s22_1 + x22_0 * b1_0 + x22_1 * b1_1;
    s22_2 = s22_2 + x22_0 * b2_0 + x22_1 * b2_1;
    s22_3 = s22_3 + x22_0 * b3_0 + x22_1 * b3_1;
    s22_4 = s22_4 + x22_0 * b4_0 + x22_1 * b4_1;
    s22_5 = s22_5 + x22_0 * b5_0 + x22_1 * b5_1;
    s22_6 = s22_6 + x22_0 * b6_0 + x22_1 * b6_1;
    s22_7 = s22_7 + x22_0 * b7_0 + x22_1 * b7_1;
    let x23_0 = subgroupBroadcast(a2_0, 7u); let x23_1 = subgroupBroadcast(a2_1, 7u);
    s23_0 = s23_0 + x23_0 * b0_0 + x23_1 * b0_1;
    s23_1 = s23_1 + x23_0 * b1_0 + x23_1 * b1_1;
    s23_2 = s23_2 + x23_0 * b2_0 + x23_1 * b2_1;
    s23_3 = s23_3 + x23_0 * b3_0 + x23_1 * b3_1;
    s23_4 = s23_4 + x23_0 * b4_0 + x23_1 * b4_1;
    s23_5 = s23_5 + x23_0 * b5_0 + x23_1 * b5_1;
    s23_6 = s23_6 + x23_0 * b6_0 + x23_1 * b6_1;
    s23_7 = s23_7 + x23_0 * b7_0 + x23_1 * b7_1;
    let x24_0 = subgroupBroadcast(a3_0, 0u); let x24_1 = subgroupBroadcast(a3_1, 0u);
    s24_0 = s24_0 + x24_0 * b0_0 + x24_1 * b0_1;
    s24_1 = s24_1 + x24_0 * b1_0 + x24_1 * b1_1;
    s24_2 = s24_2 + x24_0 * b2_0 + x24_1 * b2_1;
    s24_3 = s24_3 + x24_0 * b3_0 + x24_1 * b3_1;
    s24_4 = s24_4 + x24_0 * b4_0 + x24_1 * b4_1;
    s24_5 = s24_5 + x24_0 * b5_0 + x24_1 * b5_1;
    s24_6 = s24_6 + x24_0 * b6_0 + x24_1 * b6_1;
    s24_7 = s24_7 + x24_0 * b7_0 + x24_1 * b7_1;
    let x25_0 = subgroupBroadcast(a3_0, 1u); let x25_1 = subgroupBroadcast(a3_1, 1u);
    s25_0 = s25_0 + x25_0 * b0_0 + x25_1 * b0_1;
    s25_1 = s25_1 + x25_0 * b1_0 + x25_1 * b1_1;
    s25_2 = s25_2 + x25_0 * b2_0 + x25_1 * b2_1;
    s25_3 = s25_3 + x25_0 * b3_0 + x25_1 * b3_1;
    s25_4 = s25_4 + x25_0 * b4_0 + x25_1 * b4_1;
    s25_5 = s25_5 + x25_0 * b5_0 + x25_1 * b5_1;
    s25_6 = s25_6 + x25_0 * b6_0 + x25_1 * b6_1;
    s25_7 = s25_7 + x25_0 * b7_0 + x25_1 * b7_1;
    let x26_0 = subgroupBroadcast(a3_0, 2u); let x26_1 = subgroupBroadcast(a3_1, 2u);
    s26_0 = s26_0 + x26_0 * b0_0 + x26_1 * b0_1;
    s26_1 = s26_1 + x26_0 * b1_0 + x26_1 * b1_1;
    s26_2 = s26_2 + x26_0 * b2_0 + x26_1 * b2_1;
    s26_3 = s26_3 + x26_0 * b3_0 + x26_1 * b3_1;
    s26_4 = s26_4 + x26_0 * b4_0 + x26_1 * b4_1;
    s26_5 = s26_5 + x26_0 * b5_0 + x26_1 * b5_1;
    s26_6 = s26_6 + x26_0 * b6_0 + x26_1 * b6_1;
    s26_7 = s26_7 + x26_0 * b7_0 + x26_1 * b7_1;
    let x27_0 = subgroupBroadcast(a3_0, 3u); let x27_1 = subgroupBroadcast(a3_1, 3u);
    s27_0 = s27_0 + x27_0 * b0_0 + x27_1 * b0_1;
    s27_1 = s27_1 + x27_0 * b1_0 + x27_1 * b1_1;
    s27_2 = s27_2 + x27_0 * b2_0 + x27_1 * b2_1;
    s27_3 = s27_3 + x27_0 * b3_0 + x27_1 * b3_1;
    s27_4 = s27_4 + x27_0 * b4_0 + x27_1 * b4_1;
    s27_5 = s27_5 + x27_0 * b5_0 + x27_1 * b5_1;
    s27_6 = s27_6 + x27_0 * b6_0 + x27_1 * b6_1;
    s27_7 = s27_7 + x27_0 * b7_0 + x27_1 * b7_1;
    let x28_0 = subgroupBroadcast(a3_0, 4u); let x28_1 = subgroupBroadcast(a3_1, 4u);
    s28_0 = s28_0 + x28_0 * b0_0 + x28_1 * b0_1;
    s28_1 = s28_1 + x28_0 * b1_0 + x28_1 * b1_1;
    s28_2 = s28_2 + x28_0 * b2_0 + x28_1 * b2_1;
    s28_3 = s28_3 + x28_0 * b3_0 + x28_1 * b3_1;
    s28_4 = s28_4 + x28_0 * b4_0 + x28_1 * b4_1;
    s28_5 = s28_5 + x28_0 * b5_0 + x28_1 * b5_1;
    s28_6 = s28_6 + x28_0 * b6_0 + x28_1 * b6_1;
    s28_7 = s28_7 + x28_0 * b7_0 + x28_1 * b7_1;
    let x29_0 = subgroupBroadcast(a3_0, 5u); let x29_1 = subgroupBroadcast(a3_1, 5u);
    s29_0 = s29_0 + x29_0 * b0_0 + x29_1 * b0_1;
    s29_1 = s29_1 + x29_0 * b1_0 + x29_1 * b1_1;
    s29_2 = s29_2 + x29_0 * b2_0 + x29_1 * b2_1;
    s29_3 = s29_3 + x29_0 * b3_0 + x29_1 * b3_1;
    s29_4 = s29_4 + x29_0 * b4_0 + x29_1 * b4_1;
    s29_5 = s29_5 + x29_0 * b5_0 + x29_1 * b5_1;
    s29_6 = s29_6 + x29_0 * b6_0 + x29_1 * b6_1;
    s29_7 = s29_7 + x29_0 * b7_0 + x29_1 * b7_1;
    let x30_0 = subgroupBroadcast(a3_0, 6u); let x30_1 = subgroupBroadcast(a3_1, 6u);
    s30_0 = s30_0 + x30_0 * b0_0 + x30_1 * b0_1;
    s30_1 = s30_1 + x30_0 * b1_0 + x30_1 * b1_1;
    s30_2 = s30_2 + x30_0 * b2_0 + x30_1 * b2_1;
    s30_3 = s30_3 + x30_0 * b3_0 + x30_1 * b3_1;
    s30_4 = s30_4 + x30_0 * b4_0 + x30_1 * b4_1;
    s30_5 = s30_5 + x30_0 * b5_0 + x30_1 * b5_1;
    s30_6 = s30_6 + x30_0 * b6_0 + x30_1 * b6_1;
    s30_7 = s30_7 + x30_0 * b7_0 + x30_1 * b7_1;
    let x31_0 = subgroupBroadcast(a3_0, 7u); let x31_1 = subgroupBroadcast(a3_1, 7u);
    s31_0 = s31_0 + x31_0 * b0_0 + x31_1 * b0_1;
    s31_1 = s31_1 + x31_0 * b1_0 + x31_1 * b1_1;
    s31_2 = s31_2 + x31_0 * b2_0 + x31_1 * b2_1;
    s31_3 = s31_3 + x31_0 * b3_0 + x31_1 * b3_1;
    s31_4 = s31_4 + x31_0 * b4_0 + x31_1 * b4_1;
    s31_5 = s31_5 + x31_0 * b5_0 + x31_1 * b5_1;
    s31_6 = s31_6 + x31_0 * b6_0 + x31_1 * b6_1;
    s31_7 = s31_7 + x31_0 * b7_0 + x31_1 * b7_1;
    ia0 += 2u * params.stepA; ia1 += 2u * params.stepA; ia2 += 2u * params.stepA; ia3 += 2u * params.stepA;
    ib0 += 2u * params.stepB; ib1 += 2u * params.stepB; ib2 += 2u * params.stepB; ib3 += 2u * params.stepB; ib4 += 2u * params.stepB; ib5 += 2u * params.stepB; ib6 += 2u * params.stepB; ib7 += 2u * params.stepB;
  }
  for (; k < params.K; k++) {
    let a0_0 = f32(a[ia0]);
    let a1_0 = f32(a[ia1]);
    let a2_0 = f32(a[ia2]);
    let a3_0 = f32(a[ia3]);
    let b0_0 = f32(b[ib0]);
    let b1_0 = f32(b[ib1]);
    let b2_0 = f32(b[ib2]);
    let b3_0 = f32(b[ib3]);
    let b4_0 = f32(b[ib4]);
    let b5_0 = f32(b[ib5]);
    let b6_0 = f32(b[ib6]);
    let b7_0 = f32(b[ib7]);
    let x0_0 = subgroupBroadcast(a0_0, 0u);
    s0_0 = s0_0 + x0_0 * b0_0;
    s0_1 = s0_1 + x0_0 * b1_0;
    s0_2 = s0_2 + x0_0 * b2_0;
    s0_3 = s0_3 + x0_0 * b3_0;
    s0_4 = s0_4 + x0_0 * b4_0;
    s0_5 = s0_5 + x0_0 * b5_0;
    s0_6 = s0_6 + x0_0 * b6_0;
    s0_7 = s0_7 + x0_0 * b7_0;
    let x1_0 = subgroupBroadcast(a0_0, 1u);
    s1_0 = s1_0 + x1_0 * b0_0;
    s1_1 = s1_1 + x1_0 * b1_0;
    s1_2 = s1_2 + x1_0 * b2_0;
    s1_3 = s1_3 + x1_0 * b3_0;
    s1_4 = s1_4 + x1_0 * b4_0;
    s1_5 = s1_5 + x1_0 * b5_0;
    s1_6 = s1_6 + x1_0 * b6_0;
    s1_7 = s1_7 + x1_0 * b7_0;
    let x2_0 = subgroupBroadcast(a0_0, 2u);
    s2_0 = s2_0 + x2_0 * b0_0;
    s2_1 = s2_1 + x2_0 * b1_0;
    s2_2 = s2_2 + x2_0 * b2_0;
    s2_3 = s2_3 + x2_0 * b3_0;
    s2_4 = s2_4 + x2_0 * b4_0;
    s2_5 = s2_5 + x2_0 * b5_0;
    s2_6 = s2_6 + x2_0 * b6_0;
    s2_7 = s2_7 + x2_0 * b7_0;
    let x3_0 = subgroupBroadcast(a0_0, 3u);
    s3_0 = s3_0 + x3_0 * b0_0;
    s3_1 = s3_1 + x3_0 * b1_0;
    s3_2 = s3_2 + x3_0 * b2_0;
    s3_3 = s3_3 + x3_0 * b3_0;
    s3_4 = s3_4 + x3_0 * b4_0;
    s3_5 = s3_5 + x3_0 * b5_0;
    s3_6 = s3_6 + x3_0 * b6_0;
    s3_7 = s3_7 + x3_0 * b7_0;
    let x4_0 = subgroupBroadcast(a0_0, 4u);
    s4_0 = s4_0 + x4_0 * b0_0;
    s4_1 = s4_1 + x4_0 * b1_0;
    s4_2 = s4_2 + x4_0 * b2_0;
    s4_3 = s4_3 + x4_0 * b3_0;
    s4_4 = s4_4 + x4_0 * b4_0;
    s4_5 = s4_5 + x4_0 * b5_0;
    s4_6 = s4_6 + x4_0 * b6_0;
    s4_7 = s4_7 + x4_0 * b7_0;
    let x5_0 = subgroupBroadcast(a0_0, 5u);
    s5_0 = s5_0 + x5_0 * b0_0;
    s5_1 = s5_1 + x5_0 * b1_0;
    s5_2 = s5_2 + x5_0 * b2_0;
    s5_3 = s5_3 + x5_0 * b3_0;
    s5_4 = s5_4 + x5_0 * b4_0;
    s5_5 = s5_5 + x5_0 * b5_0;
    s5_6 = s5_6 + x5_0 * b6_0;
    s5_7 = s5_7 + x5_0 * b7_0;
    let x6_0 = subgroupBroadcast(a0_0, 6u);
    s6_0 = s6_0 + x6_0 * b0_0;
    s6_1 = s6_1 + x6_0 * b1_0;
    s6_2 = s6_2 + x6_0 * b2_0;
    s6_3 = s6_3 + x6_0 * b3_0;
    s6_4 = s6_4 + x6_0 * b4_0;
    s6_5 = s6_5 + x6_0 * b5_0;
    s6_6 = s6_6 + x6_0 * b6_0;
    s6_7 = s6_7 + x6_0 * b7_0;
    let x7_0 = subgroupBroadcast(a0_0, 7u);
    s7_0 = s7_0 + x7_0 * b0_0;
    s7_1 = s7_1 + x7_0 * b1_0;
    s7_2 = s7_2 + x7_0 * b2_0;
    s7_3 = s7_3 + x7_0 * b3_0;
    s7_4 = s7_4 + x7_0 * b4_0;
    s7_5 = s7_5 + x7_0 * b5_0;
    s7_6 = s7_6 + x7_0 * b6_0;
    s7_7 = s7_7 + x7_0 * b7_0;
    let x8_0 = subgroupBroadcast(a1_0, 0u);
    s8_0 = s8_0 + x8_0 * b0_0;
    s8_1 = s8_1 + x8_0 * b1_0;
    s8_2 = s8_2 + x8_0 * b2_0;
    s8_3 = s8_3 + x8_0 * b3_0;
    s8_4 = s8_4 + x8_0 * b4_0;
    s8_5 = s8_5 + x8_0 * b5_0;
    s8_6 = s8_6 + x8_0 * b6_0;
    s8_7 = s8_7 + x8_0 * b7_0;
    let x9_0 = subgroupBroadcast(a1_0, 1u);
    s9_0 = s9_0 + x9_0 * b0_0;
    s9_1 = s9_1 + x9_0 * b1_0;
    s9_2 = s9_2 + x9_0 * b2_0;
    s9_3 = s9_3 + x9_0 * b3_0;
    s9_4 = s9_4 + x9_0 * b4_0;
    s9_5 = s9_5 + x9_0 * b5_0;
    s9_6 = s9_6 + x9_0 * b6_0;
    s9_7 = s9_7 + x9_0 * b7_0;
    let x10_0 = subgroupBroadcast(a1_0, 2u);
    s10_0 = s10_0 + x10_0 * b0_0;
    s10_1 = s10_1 + x10_0 * b1_0;
    s10_2 = s10_2 + x10_0 * b2_0;
    s10_3 = s10_3 + x10_0 * b3_0;
    s10_4 = s10_4 + x10_0 * b4_0;
    s10_5 = s10_5 + x10_0 * b5_0;
    s10_6 = s10_6 + x10_0 * b6_0;
    s10_7 = s10_7 + x10_0 * b7_0;
    let x11_0 = subgroupBroadcast(a1_0, 3u);
    s11_0 = s11_0 + x11_0 * b0_0;
    s11_1 = s11_1 + x11_0 * b1_0;
    s11_2 = s11_2 + x11_0 * b2_0;
    s11_3 = s11_3 + x11_0 * b3_0;
    s11_4 = s11_4 + x11_0 * b4_0;
    s11_5 = s11_5 + x11_0 * b5_0;
    s11_6 = s11_6 + x11_0 * b6_0;
    s11_7 = s11_7 + x11_0 * b7_0;
    let x12_0 = subgroupBroadcast(a1_0, 4u);
    s12_0 = s12_0 + x12_0 * b0_0;
    s12_1 = s12_1 + x12_0 * b1_0;
    s12_2 = s12_2 + x12_0 * b2_0;
    s12_3 = s12_3 + x12_0 * b3_0;
    s12_4 = s12_4 + x12_0 * b4_0;
    s12_5 = s12_5 + x12_0 * b5_0;
    s12_6 = s12_6 + x12_0 * b6_0;
    s12_7 = s12_7 + x12_0 * b7_0;
    let x13_0 = subgroupBroadcast(a1_0, 5u);
    s13_0 = s13_0 + x13_0 * b0_0;
    s13_1 = s13_1 + x13_0 * b1_0;
    s13_2 = s13_2 + x13_0 * b2_0;
    s13_3 = s13_3 + x13_0 * b3_0;
    s13_4 = s13_4 + x13_0 * b4_0;
    s13_5 = s13_5 + x13_0 * b5_0;
    s13_6 = s13_6 + x13_0 * b6_0;
    s13_7 = s13_7 + x13_0 * b7_0;
    let x14_0 = subgroupBroadcast(a1_0, 6u);
    s14_0 = s14_0 + x14_0 * b0_0;
    s14_1 = s14_1 + x14_0 * b1_0;
    s14_2 = s14_2 + x14_0 * b2_0;
    s14_3 = s14_3 + x14_0 * b3_0;
    s14_4 = s14_4 + x14_0 * b4_0;
    s14_5 = s14_5 + x14_0 * b5_0;
    s14_6 = s14_6 + x14_0 * b6_0;
    s14_7 = s14_7 + x14_0 * b7_0;
    let x15_0 = subgroupBroadcast(a1_0, 7u);
    s15_0 = s15_0 + x15_0 * b0_0;
    s15_1 = s15_1 + x15_0 * b1_0;
    s15_2 = s15_2 + x15_0 * b2_0;
    s15_3 = s15_3 + x15_0 * b3_0;
    s15_4 = s15_4 + x15_0 * b4_0;
    s15_5 = s15_5 + x15_0 * b5_0;
    s15_6 = s15_6 + x15_0 * b6_0;
    s15_7 = s15_7 + x15_0 * b7_0;
    let x16_0 = subgroupBroadcast(a2_0, 0u);
    s16_0 = s16_0 + x16_0 * b0_0;
    s16_1 = s16_1 + x16_0 * b1_0;
    s16_2 = s16_2 + x16_0 * b2_0;
    s16_3 = s16_3 + x16_0 * b3_0;
    s16_4 = s16_4 + x16_0 * b4_0;
    s16_5 = s16_5 + x16_0 * b5_0;
    s16_6 = s16_6 + x16_0 * b6_0;
    s16_7 = s16_7 + x16_0 * b7_0;
    let x17_0 = subgroupBroadcast(a2_0, 1u);
    s17_0 = s17_0 + x17_0 * b0_0;
    s17_1 = s17_1 + x17_0 * b1_0;
    s17_2 = s17_2 + x17_0 * b2_0;
    s17_3 = s17_3 + x17_0 * b3_0;
    s17_4 = s17_4 + x17_0 * b4_0;
    s17_5 = s17_5 + x17_0 * b5_0;
    s17_6 = s17_6 + x17_0 * b6_0;
    s17_7 = s17_7 + x17_0 * b7_0;
    let x18_0 = subgroupBroadcast(a2_0, 2u);
    s18_0 = s18_0 + x18_0 * b0_0;
    s18_1 = s18_1 + x18_0 * b1_0;
    s18_2 = s18_2 + x18_0 * b2_0;
    s18_3 = s18_3 + x18_0 * b3_0;
    s18_4 = s18_4 + x18_0 * b4_0;
    s18_5 = s18_5 + x18_0 * b5_0;
    s18_6 = s18_6 + x18_0 * b6_0;
    s18_7 = s18_7 + x18_0 * b7_0;
    let x19_0 = subgroupBroadcast(a2_0, 3u);
    s19_0 = s19_0 + x19_0 * b0_0;
    s19_1 = s19_1 + x19_0 * b1_0;
    s19_2 = s19_2 + x19_0 * b2_0;
    s19_3 = s19_3 + x19_0 * b3_0;
    s19_4 = s19_4 + x19_0 * b4_0;
    s19_5 = s19_5 + x19_0 * b5_0;
    s19_6 = s19_6 + x19_0 * b6_0;
    s19_7 = s19_7 + x19_0 * b7_0;
    let x20_0 = subgroupBroadcast(a2_0, 4u);
    s20_0 = s20_0 + x20_0 * b0_0;
    s20_1 = s20_1 + x20_0 * b1_0;
    s20_2 = s20_2 + x20_0 * b2_0;
    s20_3 = s20_3 + x20_0 * b3_0;
    s20_4 = s20_4 + x20_0 * b4_0;
    s20_5 = s20_5 + x20_0 * b5_0;
    s20_6 = s20_6 + x20_0 * b6_0;
    s20_7 = s20_7 + x20_0 * b7_0;
    let x21_0 = subgroupBroadcast(a2_0, 5u);
    s21_0 = s21_0 + x21_0 * b0_0;
    s21_1 = s21_1 + x21_0 * b1_0;
    s21_2 = s21_2 + x21_0 * b2_0;
    s21_3 = s21_3 + x21_0 * b3_0;
    s21_4 = s21_4 + x21_0 * b4_0;
    s21_5 = s21_5 + x21_0 * b5_0;
    s21_6 = s21_6 + x21_0 * b6_0;
    s21_7 = s21_7 + x21_0 * b7_0;
    let x22_0 = subgroupBroadcast(a2_0, 6u);
    s22_0 = s22_0 + x22_0 * b0_0;
    s22_1 = s22_1 + x22_0 * b1_0;
    s22_2 = s22_2 + x22_0 * b2_0;
    s22_3 = s22_3 + x22_0 * b3_0;
    s22_4 = s22_4 + x22_0 * b4_0;
    s22_5 = s22_5 + x22_0 * b5_0;
    s22_6 = s22_6 + x22_0 * b6_0;
    s22_7 = s22_7 + x22_0 * b7_0;
    let x23_0 = subgroupBroadcast(a2_0, 7u);
    s23_0 = s23_0 + x23_0 * b0_0;
    s23_1 = s23_1 + x23_0 * b1_0;
    s23_2 = s23_2 + x23_0 * b2_0;
    s23_3 = s23_3 + x23_0 * b3_0;
    s23_4 = s23_4 + x23_0 * b4_0;
    s23_5 = s23_5 + x23_0 * b5_0;
    s23_6 = s23_6 + x23_0 * b6_0;
    s23_7 = s23_7 + x23_0 * b7_0;
    let x24_0 = subgroupBroadcast(a3_0, 0u);
    s24_0 = s24_0 + x24_0 * b0_0;
    s24_1 = s24_1 + x24_0 * b1_0;
    s24_2 = s24_2 + x24_0 * b2_0;
    s24_3 = s24_3 + x24_0 * b3_0;
    s24_4 = s24_4 + x24_0 * b4_0;
    s24_5 = s24_5 + x24_0 * b5_0;
    s24_6 = s24_6 + x24_0 * b6_0;
    s24_7 = s24_7 + x24_0 * b7_0;
    let x25_0 = subgroupBroadcast(a3_0, 1u);
    s25_0 = s25_0 + x25_0 * b0_0;
    s25_1 = s25_1 + x25_0 * b1_0;
    s25_2 = s25_2 + x25_0 * b2_0;
    s25_3 = s25_3 + x25_0 * b3_0;
    s25_4 = s25_4 + x25_0 * b4_0;
    s25_5 = s25_5 + x25_0 * b5_0;
    s25_6 = s25_6 + x25_0 * b6_0;
    s25_7 = s25_7 + x25_0 * b7_0;
    let x26_0 = subgroupBroadcast(a3_0, 2u);
    s26_0 = s26_0 + x26_0 * b0_0;
    s26_1 = s26_1 + x26_0 * b1_0;
    s26_2 = s26_2 + x26_0 * b2_0;
    s26_3 = s26_3 + x26_0 * b3_0;
    s26_4 = s26_4 + x26_0 * b4_0;
    s26_5 = s26_5 + x26_0 * b5_0;
    s26_6 = s26_6 + x26_0 * b6_0;
    s26_7 = s26_7 + x26_0 * b7_0;
    let x27_0 = subgroupBroadcast(a3_0, 3u);
    s27_0 = s27_0 + x27_0 * b0_0;
    s27_1 = s27_1 + x27_0 * b1_0;
    s27_2 = s27_2 + x27_0 * b2_0;
    s27_3 = s27_3 + x27_0 * b3_0;
    s27_4 = s27_4 + x27_0 * b4_0;
    s27_5 = s27_5 + x27_0 * b5_0;
    s27_6 = s27_6 + x27_0 * b6_0;
    s27_7 = s27_7 + x27_0 * b7_0;
    let x28_0 = subgroupBroadcast(a3_0, 4u);
    s28_0 = s28_0 + x28_0 * b0_0;
    s28_1 = s28_1 + x28_0 * b1_0;
    s28_2 = s28_2 + x28_0 * b2_0;
    s28_3 = s28_3 + x28_0 * b3_0;
    s28_4 = s28_4 + x28_0 * b4_0;
    s28_5 = s28_5 + x28_0 * b5_0;
    s28_6 = s28_6 + x28_0 * b6_0;
    s28_7 = s28_7 + x28_0 * b7_0;
    let x29_0 = subgroupBroadcast(a3_0, 5u);
    s29_0 = s29_0 + x29_0 * b0_0;
    s29_1 = s29_1 + x29_0 * b1_0;
    s29_2 = s29_2 + x29_0 * b2_0;
    s29_3 = s29_3 + x29_0 * b3_0;
    s29_4 = s29_4 + x29_0 * b4_0;
    s29_5 = s29_5 + x29_0 * b5_0;
    s29_6 = s29_6 + x29_0 * b6_0;
    s29_7 = s29_7 + x29_0 * b7_0;
    let x30_0 = subgroupBroadcast(a3_0, 6u);
    s30_0 = s30_0 + x30_0 * b0_0;
    s30_1 = s30_1 + x30_0 * b1_0;
    s30_2 = s30_2 + x30_0 * b2_0;
    s30_3 = s30_3 + x30_0 * b3_0;
    s30_4 = s30_4 + x30_0 * b4_0;
    s30_5 = s30_5 + x30_0 * b5_0;
    s30_6 = s30_6 + x30_0 * b6_0;
    s30_7 = s30_7 + x30_0 * b7_0;
    let x31_0 = subgroupBroadcast(a3_0, 7u);
    s31_0 = s31_0 + x31_0 * b0_0;
    s31_1 = s31_1 + x31_0 * b1_0;
    s31_2 = s31_2 + x31_0 * b2_0;
    s31_3 = s31_3 + x31_0 * b3_0;
    s31_4 = s31_4 + x31_0 * b4_0;
    s31_5 = s31_5 + x31_0 * b5_0;
    s31_6 = s31_6 + x31_0 * b6_0;
    s31_7 = s31_7 + x31_0 * b7_0;
    ia0 += params.stepA; ia1 += params.stepA; ia2 += params.stepA; ia3 += params.stepA;
    ib0 += params.stepB; ib1 += params.stepB; ib2 += params.stepB; ib3 += params.stepB; ib4 += params.stepB; ib5 += params.stepB; ib6 += params.stepB; ib7 += params.stepB;
  }

  var sums = array<f32, 256>(
    s0_0, s0_1, s0_2, s0_3, s0_4, s0_5, s0_6, s0_7,
    s1_0, s1_1, s1_2, s1_3, s1_4, s1_5, s1_6, s1_7,
    s2_0, s2_1, s2_2, s2_3, s2_4, s2_5, s2_6, s2_7,
    s3_0, s3_1, s3_2, s3_3, s3_4, s3_5, s3_6, s3_7,
    s4_0, s4_1, s4_2, s4_3, s4_4, s4_5, s4_6, s4_7,
    s5_0, s5_1, s5_2, s5_3, s5_4, s5_5, s5_6, s5_7,
    s6_0, s6_1, s6_2, s6_3, s6_4, s6_5, s6_6, s6_7,
    s7_0, s7_1, s7_2, s7_3, s7_4, s7_5, s7_6, s7_7,
    s8_0, s8_1, s8_2, s8_3, s8_4, s8_5, s8_6, s8_7,
    s9_0, s9_1, s9_2, s9_3, s9_4, s9_5, s9_6, s9_7,
    s10_0, s10_1, s10_2, s10_3, s10_4, s10_5, s10_6, s10_7,
    s11_0, s11_1, s11_2, s11_3, s11_4, s11_5, s11_6, s11_7,
    s12_0, s12_1, s12_2, s12_3, s12_4, s12_5, s12_6, s12_7,
    s13_0, s13_1, s13_2, s13_3, s13_4, s13_5, s13_6, s13_7,
    s14_0, s14_1, s14_2, s14_3, s14_4, s14_5, s14_6, s14_7,
    s15_0, s15_1, s15_2, s15_3, s15_4, s15_5, s15_6, s15_7,
    s16_0, s16_1, s16_2, s16_3, s16_4, s16_5, s16_6, s16_7,
    s17_0, s17_1, s17_2, s17_3, s17_4, s17_5, s17_6, s17_7,
    s18_0, s18_1, s18_2, s18_3, s18_4, s18_5, s18_6, s18_7,
    s19_0, s19_1, s19_2, s19_3, s19_4, s19_5, s19_6, s19_7,
    s20_0, s20_1, s20_2, s20_3, s20_4, s20_5, s20_6, s20_7,
    s21_0, s21_1, s21_2, s21_3, s21_4, s21_5, s21_6, s21_7,
    s22_0, s22_1, s22_2, s22_3, s22_4, s22_5, s22_6, s22_7,
    s23_0, s23_1, s23_2, s23_3, s23_4, s23_5, s23_6, s23_7,
    s24_0, s24_1, s24_2, s24_3, s24_4, s24_5, s24_6, s24_7,
    s25_0, s25_1, s25_2, s25_3, s25_4, s25_5, s25_6, s25_7,
    s26_0, s26_1, s26_2, s26_3, s26_4, s26_5, s26_6, s26_7,
    s27_0, s27_1, s27_2, s27_3, s27_4, s27_5, s27_6, s27_7,
    s28_0, s28_1, s28_2, s28_3, s28_4, s28_5, s28_6, s28_7,
    s29_0, s29_1, s29_2, s29_3, s29_4, s29_5, s29_6, s29_7,
    s30_0, s30_1, s30_2, s30_3, s30_4, s30_5, s30_6, s30_7,
    s31_0, s31_1, s31_2, s31_3, s31_4, s31_5, s31_6, s31_7,
  );
  let within = col0 - lane + own * lanes <= width && params.accumulate == 0u;
  if (within && params.added == 0u) {
    for (var i = 0u; i < 32u; i++) {
      let row = row0 + i;
      if (row >= params.M) { continue; }
      let at = row * width + col0;
      y[at] = Y(sums[i * 8u + 0u]);
      y[at + 1u * lanes] = Y(sums[i * 8u + 1u]);
      y[at + 2u * lanes] = Y(sums[i * 8u + 2u]);
      y[at + 3u * lanes] = Y(sums[i * 8u + 3u]);
      y[at + 4u * lanes] = Y(sums[i * 8u + 4u]);
      y[at + 5u * lanes] = Y(sums[i * 8u + 5u]);
      y[at + 6u * lanes] = Y(sums[i * 8u + 6u]);
      y[at + 7u * lanes] = Y(sums[i * 8u + 7u]);
    }
  } else if (within && params.added == 2u) {
    for (var i = 0u; i < 32u; i++) {
      let row = row0 + i;
      if (row >= params.M) { continue; }
      let at = row * width + col0;
      y[at] = Y(sums[i * 8u + 0u] + add[at]);
      y[at + 1u * lanes] = Y(sums[i * 8u + 1u] + add[at + 1u * lanes]);
      y[at + 2u * lanes] = Y(sums[i * 8u + 2u] + add[at + 2u * lanes]);
      y[at + 3u * lanes] = Y(sums[i * 8u + 3u] + add[at + 3u * lanes]);
      y[at + 4u * lanes] = Y(sums[i * 8u + 4u] + add[at + 4u * lanes]);
      y[at + 5u * lanes] = Y(sums[i * 8u + 5u] + add[at + 5u * lanes]);
      y[at + 6u * lanes] = Y(sums[i * 8u + 6u] + add[at + 6u * lanes]);
      y[at + 7u * lanes] = Y(sums[i * 8u + 7u] + add[at + 7u * lanes]);
    }
  } else if (within && params.added == 3u) {
    for (var i = 0u; i < 32u; i++) {
      let row = row0 + i;
      if (row >= params.M) { continue; }
      let at = row * width + col0;
      y[at] = Y(gated(sums[i * 8u + 0u], sums[i * 8u + 4u]));
      y[at + 1u * lanes] = Y(gated(sums[i * 8u + 1u], sums[i * 8u + 5u]));
      y[at + 2u * lanes] = Y(gated(sums[i * 8u + 2u], sums[i * 8u + 6u]));
      y[at + 3u * lanes] = Y(gated(sums[i * 8u + 3u], sums[i * 8u + 7u]));
    }
  } else {
    for (var i = 0u; i < 32u; i++) {
      let row = row0 + i;
      for (var j = 0u; j < own; j++) {
        put(row, col0 + j * lanes, width, sums[i * 8u + j], sums[i * 8u + (j + 4u) % 8u]);
      }
    }
  }
}
