// Matrix product: y[m, n] = sum over k of a(m, k) * b(k, n), then + add, then + y[m, n] if asked.
//
//   a     any layout: a(m, k) = a[m * rowA + k * stepA]      NN, NT: rowA = K, stepA = 1    TN: rowA = 1, stepA = M
//   b     any layout: b(k, n) = b[k * stepB + n * colB]      NN, TN: stepB = N, colB = 1    NT: stepB = 1, colB = K
//   add   added = 1: bias [N];  added = 2: [M, N], the residual stream;  added = 0: any buffer
//   y     [M, N]; read first when accumulate = 1 (weight gradients). Not overrides: a large tile takes a software
//         adapter a second to compile, a branch an output nothing that shows
//
// Grid      a row of LANES threads computes 4 x (1 * LANES) outputs, 4 x 1 a thread, columns a stride of LANES apart;
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

override WG: u32 = 32u; // threads in a workgroup; a multiple of the LANES
override LANES: u32 = 32u; // neighbouring threads that read neighbouring columns

alias A = f32; // each f16 where its buffer holds halves (src/gpu/halves.ts)
alias B = f32;
alias Y = f32;

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(2) var<storage, read> add: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<Y>;
@group(0) @binding(4) var<uniform> params: Params;

fn put(row: u32, col: u32, sum: f32) {
  if (row >= params.M || col >= params.N) { return; }
  var value = sum;
  if (params.added == 1u) { value += add[col]; }
  if (params.added == 2u) { value += add[row * params.N + col]; }
  if (params.accumulate == 1u) { value += f32(y[row * params.N + col]); }
  y[row * params.N + col] = Y(value);
}
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(local_invocation_index) tid: u32,
) {
  let lane = tid % LANES;
  let tile = (wg.y * grid.x + wg.x) * (WG / LANES) + tid / LANES;
  let across = (params.N + 1u * LANES - 1u) / (1u * LANES); // tiles side by side
  let row0 = tile / across * 4u;
  let col0 = tile % across * 1u * LANES + lane;
  if (row0 >= params.M) { return; }

  var ia0 = min(row0 + 0u, params.M - 1u) * params.rowA;
  var ia1 = min(row0 + 1u, params.M - 1u) * params.rowA;
  var ia2 = min(row0 + 2u, params.M - 1u) * params.rowA;
  var ia3 = min(row0 + 3u, params.M - 1u) * params.rowA;
  var ib0 = min(col0, params.N - 1u) * params.colB;
  var s0_0 = 0.0;
  var s1_0 = 0.0;
  var s2_0 = 0.0;
  var s3_0 = 0.0;

  var k = 0u;
  for (; k + 3u < params.K; k += 4u) {
    let a0_0 = f32(a[ia0]);
    let a1_0 = f32(a[ia1]);
    let a2_0 = f32(a[ia2]);
    let a3_0 = f32(a[ia3]);
    let b0_0 = f32(b[ib0]);
    let a0_1 = f32(a[ia0 + 1u * params.stepA]);
    let a1_1 = f32(a[ia1 + 1u * params.stepA]);
    let a2_1 = f32(a[ia2 + 1u * params.stepA]);
    let a3_1 = f32(a[ia3 + 1u * params.stepA]);
    let b0_1 = f32(b[ib0 + 1u * params.stepB]);
    let a0_2 = f32(a[ia0 + 2u * params.stepA]);
    let a1_2 = f32(a[ia1 + 2u * params.stepA]);
    let a2_2 = f32(a[ia2 + 2u * params.stepA]);
    let a3_2 = f32(a[ia3 + 2u * params.stepA]);
    let b0_2 = f32(b[ib0 + 2u * params.stepB]);
    let a0_3 = f32(a[ia0 + 3u * params.stepA]);
    let a1_3 = f32(a[ia1 + 3u * params.stepA]);
    let a2_3 = f32(a[ia2 + 3u * params.stepA]);
    let a3_3 = f32(a[ia3 + 3u * params.stepA]);
    let b0_3 = f32(b[ib0 + 3u * params.stepB]);
    let x0_0 = a0_0; let x0_1 = a0_1; let x0_2 = a0_2; let x0_3 = a0_3;
    s0_0 = s0_0 + x0_0 * b0_0 + x0_1 * b0_1 + x0_2 * b0_2 + x0_3 * b0_3;
    let x1_0 = a1_0; let x1_1 = a1_1; let x1_2 = a1_2; let x1_3 = a1_3;
    s1_0 = s1_0 + x1_0 * b0_0 + x1_1 * b0_1 + x1_2 * b0_2 + x1_3 * b0_3;
    let x2_0 = a2_0; let x2_1 = a2_1; let x2_2 = a2_2; let x2_3 = a2_3;
    s2_0 = s2_0 + x2_0 * b0_0 + x2_1 * b0_1 + x2_2 * b0_2 + x2_3 * b0_3;
    let x3_0 = a3_0; let x3_1 = a3_1; let x3_2 = a3_2; let x3_3 = a3_3;
    s3_0 = s3_0 + x3_0 * b0_0 + x3_1 * b0_1 + x3_2 * b0_2 + x3_3 * b0_3;
    ia0 += 4u * params.stepA; ia1 += 4u * params.stepA; ia2 += 4u * params.stepA; ia3 += 4u * params.stepA;
    ib0 += 4u * params.stepB;
  }
  for (; k < params.K; k++) {
    let a0_0 = f32(a[ia0]);
    let a1_0 = f32(a[ia1]);
    let a2_0 = f32(a[ia2]);
    let a3_0 = f32(a[ia3]);
    let b0_0 = f32(b[ib0]);
    let x0_0 = a0_0;
    s0_0 = s0_0 + x0_0 * b0_0;
    let x1_0 = a1_0;
    s1_0 = s1_0 + x1_0 * b0_0;
    let x2_0 = a2_0;
    s2_0 = s2_0 + x2_0 * b0_0;
    let x3_0 = a3_0;
    s3_0 = s3_0 + x3_0 * b0_0;
    ia0 += params.stepA; ia1 += params.stepA; ia2 += params.stepA; ia3 += params.stepA;
    ib0 += params.stepB;
  }

  put(row0 + 0u, col0, s0_0);
  put(row0 + 1u, col0, s1_0);
  put(row0 + 2u, col0, s2_0);
  put(row0 + 3u, col0, s3_0);
}
