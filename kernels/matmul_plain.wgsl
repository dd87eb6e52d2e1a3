// Matrix product: y[m, n] = sum over k of a(m, k) * b(k, n), then + add, then + y[m, n] if asked.
//
//   a     any layout: a(m, k) = a[m * rowA + k * stepA]      NN, NT: rowA = K, stepA = 1    TN: rowA = 1, stepA = M
//   b     any layout: b(k, n) = b[k * stepB + n * colB]      NN, TN: stepB = N, colB = 1    NT: stepB = 1, colB = K
//   add   ADD = 1: bias [N];  ADD = 2: [M, N], the residual stream;  ADD = 0: any buffer
//   y     [M, N]; read first when ACCUMULATE = 1 (weight gradients)
//
// Grid      a row of LANES threads computes 8 x (8 * LANES) outputs, 8 x 8 a thread, columns a stride of LANES apart;
//           workgroups in a row, folded over x and y past 65535. Any M, K, N >= 1.
// Numerics  one thread sums each output over k in ascending order, s = s + a * b, from 0: the same bits whatever the
//           tile, M or the position in the batch. Printed by scripts/gen-matmul.mjs: edit there.
// Checked   against a float64 product by test/gpu/matmul.test.ts.

struct Params {
  M: u32,      // rows of y
  N: u32,      // columns of y
  K: u32,      // summed over
  rowA: u32,   // a: from one m to the next
  stepA: u32,  // a: from one k to the next
  stepB: u32,  // b: from one k to the next
  colB: u32,   // b: from one n to the next
}

override WG: u32 = 64u; // threads in a workgroup; a multiple of the LANES
override LANES: u32 = 4u; // neighbouring threads that read neighbouring columns
override ADD: u32 = 0u;
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
  @builtin(local_invocation_index) tid: u32,
) {
  let lane = tid % LANES;
  let tile = (wg.y * grid.x + wg.x) * (WG / LANES) + tid / LANES;
  let across = (params.N + 8u * LANES - 1u) / (8u * LANES); // tiles side by side
  let row0 = tile / across * 8u;
  let col0 = tile % across * 8u * LANES + lane;
  if (row0 >= params.M) { return; }

  var ia0 = min(row0 + 0u, params.M - 1u) * params.rowA;
  var ia1 = min(row0 + 1u, params.M - 1u) * params.rowA;
  var ia2 = min(row0 + 2u, params.M - 1u) * params.rowA;
  var ia3 = min(row0 + 3u, params.M - 1u) * params.rowA;
  var ia4 = min(row0 + 4u, params.M - 1u) * params.rowA;
  var ia5 = min(row0 + 5u, params.M - 1u) * params.rowA;
  var ia6 = min(row0 + 6u, params.M - 1u) * params.rowA;
  var ia7 = min(row0 + 7u, params.M - 1u) * params.rowA;
  var ib0 = min(col0, params.N - 1u) * params.colB;
  var ib1 = min(col0 + 1u * LANES, params.N - 1u) * params.colB;
  var ib2 = min(col0 + 2u * LANES, params.N - 1u) * params.colB;
  var ib3 = min(col0 + 3u * LANES, params.N - 1u) * params.colB;
  var ib4 = min(col0 + 4u * LANES, params.N - 1u) * params.colB;
  var ib5 = min(col0 + 5u * LANES, params.N - 1u) * params.colB;
  var ib6 = min(col0 + 6u * LANES, params.N - 1u) * params.colB;
  var ib7 = min(col0 + 7u * LANES, params.N - 1u) * params.colB;
  var s0_0 = 0.0; var s0_1 = 0.0; var s0_2 = 0.0; var s0_3 = 0.0; var s0_4 = 0.0; var s0_5 = 0.0; var s0_6 = 0.0; var s0_7 = 0.0;
  var s1_0 = 0.0; var s1_1 = 0.0; var s1_2 = 0.0; var s1_3 = 0.0; var s1_4 = 0.0; var s1_5 = 0.0; var s1_6 = 0.0; var s1_7 = 0.0;
  var s2_0 = 0.0; var s2_1 = 0.0; var s2_2 = 0.0; var s2_3 = 0.0; var s2_4 = 0.0; var s2_5 = 0.0; var s2_6 = 0.0; var s2_7 = 0.0;
  var s3_0 = 0.0; var s3_1 = 0.0; var s3_2 = 0.0; var s3_3 = 0.0; var s3_4 = 0.0; var s3_5 = 0.0; var s3_6 = 0.0; var s3_7 = 0.0;
  var s4_0 = 0.0; var s4_1 = 0.0; var s4_2 = 0.0; var s4_3 = 0.0; var s4_4 = 0.0; var s4_5 = 0.0; var s4_6 = 0.0; var s4_7 = 0.0;
  var s5_0 = 0.0; var s5_1 = 0.0; var s5_2 = 0.0; var s5_3 = 0.0; var s5_4 = 0.0; var s5_5 = 0.0; var s5_6 = 0.0; var s5_7 = 0.0;
  var s6_0 = 0.0; var s6_1 = 0.0; var s6_2 = 0.0; var s6_3 = 0.0; var s6_4 = 0.0; var s6_5 = 0.0; var s6_6 = 0.0; var s6_7 = 0.0;
  var s7_0 = 0.0; var s7_1 = 0.0; var s7_2 = 0.0; var s7_3 = 0.0; var s7_4 = 0.0; var s7_5 = 0.0; var s7_6 = 0.0; var s7_7 = 0.0;

  var k = 0u;
  for (; k < params.K; k++) {
    let a0 = a[ia0];
    let a1 = a[ia1];
    let a2 = a[ia2];
    let a3 = a[ia3];
    let a4 = a[ia4];
    let a5 = a[ia5];
    let a6 = a[ia6];
    let a7 = a[ia7];
    let b0 = b[ib0];
    let b1 = b[ib1];
    let b2 = b[ib2];
    let b3 = b[ib3];
    let b4 = b[ib4];
    let b5 = b[ib5];
    let b6 = b[ib6];
    let b7 = b[ib7];
    let x0 = a0; s0_0 += x0 * b0; s0_1 += x0 * b1; s0_2 += x0 * b2; s0_3 += x0 * b3; s0_4 += x0 * b4; s0_5 += x0 * b5; s0_6 += x0 * b6; s0_7 += x0 * b7;
    let x1 = a1; s1_0 += x1 * b0; s1_1 += x1 * b1; s1_2 += x1 * b2; s1_3 += x1 * b3; s1_4 += x1 * b4; s1_5 += x1 * b5; s1_6 += x1 * b6; s1_7 += x1 * b7;
    let x2 = a2; s2_0 += x2 * b0; s2_1 += x2 * b1; s2_2 += x2 * b2; s2_3 += x2 * b3; s2_4 += x2 * b4; s2_5 += x2 * b5; s2_6 += x2 * b6; s2_7 += x2 * b7;
    let x3 = a3; s3_0 += x3 * b0; s3_1 += x3 * b1; s3_2 += x3 * b2; s3_3 += x3 * b3; s3_4 += x3 * b4; s3_5 += x3 * b5; s3_6 += x3 * b6; s3_7 += x3 * b7;
    let x4 = a4; s4_0 += x4 * b0; s4_1 += x4 * b1; s4_2 += x4 * b2; s4_3 += x4 * b3; s4_4 += x4 * b4; s4_5 += x4 * b5; s4_6 += x4 * b6; s4_7 += x4 * b7;
    let x5 = a5; s5_0 += x5 * b0; s5_1 += x5 * b1; s5_2 += x5 * b2; s5_3 += x5 * b3; s5_4 += x5 * b4; s5_5 += x5 * b5; s5_6 += x5 * b6; s5_7 += x5 * b7;
    let x6 = a6; s6_0 += x6 * b0; s6_1 += x6 * b1; s6_2 += x6 * b2; s6_3 += x6 * b3; s6_4 += x6 * b4; s6_5 += x6 * b5; s6_6 += x6 * b6; s6_7 += x6 * b7;
    let x7 = a7; s7_0 += x7 * b0; s7_1 += x7 * b1; s7_2 += x7 * b2; s7_3 += x7 * b3; s7_4 += x7 * b4; s7_5 += x7 * b5; s7_6 += x7 * b6; s7_7 += x7 * b7;
    ia0 += params.stepA; ia1 += params.stepA; ia2 += params.stepA; ia3 += params.stepA; ia4 += params.stepA; ia5 += params.stepA; ia6 += params.stepA; ia7 += params.stepA;
    ib0 += params.stepB; ib1 += params.stepB; ib2 += params.stepB; ib3 += params.stepB; ib4 += params.stepB; ib5 += params.stepB; ib6 += params.stepB; ib7 += params.stepB;
  }

  put(row0 + 0u, col0, s0_0); put(row0 + 0u, col0 + 1u * LANES, s0_1); put(row0 + 0u, col0 + 2u * LANES, s0_2); put(row0 + 0u, col0 + 3u * LANES, s0_3); put(row0 + 0u, col0 + 4u * LANES, s0_4); put(row0 + 0u, col0 + 5u * LANES, s0_5); put(row0 + 0u, col0 + 6u * LANES, s0_6); put(row0 + 0u, col0 + 7u * LANES, s0_7);
  put(row0 + 1u, col0, s1_0); put(row0 + 1u, col0 + 1u * LANES, s1_1); put(row0 + 1u, col0 + 2u * LANES, s1_2); put(row0 + 1u, col0 + 3u * LANES, s1_3); put(row0 + 1u, col0 + 4u * LANES, s1_4); put(row0 + 1u, col0 + 5u * LANES, s1_5); put(row0 + 1u, col0 + 6u * LANES, s1_6); put(row0 + 1u, col0 + 7u * LANES, s1_7);
  put(row0 + 2u, col0, s2_0); put(row0 + 2u, col0 + 1u * LANES, s2_1); put(row0 + 2u, col0 + 2u * LANES, s2_2); put(row0 + 2u, col0 + 3u * LANES, s2_3); put(row0 + 2u, col0 + 4u * LANES, s2_4); put(row0 + 2u, col0 + 5u * LANES, s2_5); put(row0 + 2u, col0 + 6u * LANES, s2_6); put(row0 + 2u, col0 + 7u * LANES, s2_7);
  put(row0 + 3u, col0, s3_0); put(row0 + 3u, col0 + 1u * LANES, s3_1); put(row0 + 3u, col0 + 2u * LANES, s3_2); put(row0 + 3u, col0 + 3u * LANES, s3_3); put(row0 + 3u, col0 + 4u * LANES, s3_4); put(row0 + 3u, col0 + 5u * LANES, s3_5); put(row0 + 3u, col0 + 6u * LANES, s3_6); put(row0 + 3u, col0 + 7u * LANES, s3_7);
  put(row0 + 4u, col0, s4_0); put(row0 + 4u, col0 + 1u * LANES, s4_1); put(row0 + 4u, col0 + 2u * LANES, s4_2); put(row0 + 4u, col0 + 3u * LANES, s4_3); put(row0 + 4u, col0 + 4u * LANES, s4_4); put(row0 + 4u, col0 + 5u * LANES, s4_5); put(row0 + 4u, col0 + 6u * LANES, s4_6); put(row0 + 4u, col0 + 7u * LANES, s4_7);
  put(row0 + 5u, col0, s5_0); put(row0 + 5u, col0 + 1u * LANES, s5_1); put(row0 + 5u, col0 + 2u * LANES, s5_2); put(row0 + 5u, col0 + 3u * LANES, s5_3); put(row0 + 5u, col0 + 4u * LANES, s5_4); put(row0 + 5u, col0 + 5u * LANES, s5_5); put(row0 + 5u, col0 + 6u * LANES, s5_6); put(row0 + 5u, col0 + 7u * LANES, s5_7);
  put(row0 + 6u, col0, s6_0); put(row0 + 6u, col0 + 1u * LANES, s6_1); put(row0 + 6u, col0 + 2u * LANES, s6_2); put(row0 + 6u, col0 + 3u * LANES, s6_3); put(row0 + 6u, col0 + 4u * LANES, s6_4); put(row0 + 6u, col0 + 5u * LANES, s6_5); put(row0 + 6u, col0 + 6u * LANES, s6_6); put(row0 + 6u, col0 + 7u * LANES, s6_7);
  put(row0 + 7u, col0, s7_0); put(row0 + 7u, col0 + 1u * LANES, s7_1); put(row0 + 7u, col0 + 2u * LANES, s7_2); put(row0 + 7u, col0 + 3u * LANES, s7_3); put(row0 + 7u, col0 + 4u * LANES, s7_4); put(row0 + 7u, col0 + 5u * LANES, s7_5); put(row0 + 7u, col0 + 6u * LANES, s7_6); put(row0 + 7u, col0 + 7u * LANES, s7_7);
}
