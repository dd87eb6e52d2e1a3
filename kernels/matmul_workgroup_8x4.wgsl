// Matrix product: y[m, n] = sum over k of a(m, k) * b(k, n), then + add, then + y[m, n] if asked; for hardware GPUs.
//
//   a     any layout: a(m, k) = a[m * rowA + k * stepA]      NN, NT: rowA = K, stepA = 1    TN: rowA = 1, stepA = M
//   b     any layout: b(k, n) = b[k * stepB + n * colB]      NN, TN: stepB = N, colB = 1    NT: stepB = 1, colB = K
//   add   added = 1: bias [N];  added = 2: [M, N], the residual stream;  added = 0: any buffer
//   y     [M, N]; read first when accumulate = 1 (weight gradients). Not overrides: a large tile takes a software
//         adapter a second to compile, a branch an output nothing that shows
//
// Grid      a workgroup of 16 x 16 threads computes 128 x 64 outputs, 8 x 4 a thread (4 x 4, 64 apart); 16 steps of k at a time are put
//           into its memory as vec4s. Workgroups in a row, folded over x and y past 65535. Any M, K, N >= 1.
// Numerics  one thread sums each output over k in ascending order, s = s + a * b, from 0, as every other tile does: the
//           same bits. Steps past K add 0 * 0. Printed by scripts/gen-matmul.mjs: edit scripts/lib/matmulWorkgroup.mjs.
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

// A row of vec4s is one longer than it need be: lanes that walk along k would all store to one bank.
var<workgroup> tileA: array<vec4f, 528>; // [k][m / 4]
var<workgroup> tileB: array<vec4f, 272>; // [k][n / 4]

fn loadA(row: u32, k: u32) -> f32 {
  if (row >= params.M || k >= params.K) { return 0.0; }
  return f32(a[row * params.rowA + k * params.stepA]);
}

fn loadB(k: u32, col: u32) -> f32 {
  if (col >= params.N || k >= params.K) { return 0.0; }
  return f32(b[k * params.stepB + col * params.colB]);
}

fn put4(row: u32, col: u32, sums: vec4f) {
  if (row >= params.M || col >= params.N) { return; }
  for (var c = 0u; c < 4u; c++) { put(row, col + c, sums[c]); }
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(local_invocation_index) tid: u32,
) {
  let x0 = tid % 16u;
  let y0 = tid / 16u;
  let tile = wg.y * grid.x + wg.x;
  let across = (params.N + 63u) / 64u; // tiles side by side
  let row0 = tile / across * 128u;
  let col0 = tile % across * 64u;
  // Neighbouring threads read neighbouring values, whichever of a and b lies transposed.
  let kOfA = select(y0, x0, params.stepA == 1u);
  let kOfB = select(y0, x0, params.stepB == 1u);
  let mOfA = x0 + y0 - kOfA;
  let nOfB = x0 + y0 - kOfB;
  var s0_0 = vec4f();
  var s1_0 = vec4f();
  var s2_0 = vec4f();
  var s3_0 = vec4f();
  var s4_0 = vec4f();
  var s5_0 = vec4f();
  var s6_0 = vec4f();
  var s7_0 = vec4f();

  for (var k0 = 0u; k0 < params.K; k0 += 16u) {
    let m0 = row0 + mOfA * 4u;
    tileA[kOfA * 33u + mOfA] = vec4f(loadA(m0, k0 + kOfA), loadA(m0 + 1u, k0 + kOfA), loadA(m0 + 2u, k0 + kOfA), loadA(m0 + 3u, k0 + kOfA));
    let m1 = row0 + 64u + mOfA * 4u;
    tileA[kOfA * 33u + mOfA + 16u] = vec4f(loadA(m1, k0 + kOfA), loadA(m1 + 1u, k0 + kOfA), loadA(m1 + 2u, k0 + kOfA), loadA(m1 + 3u, k0 + kOfA));
    let n0 = col0 + nOfB * 4u;
    tileB[kOfB * 17u + nOfB] = vec4f(loadB(k0 + kOfB, n0), loadB(k0 + kOfB, n0 + 1u), loadB(k0 + kOfB, n0 + 2u), loadB(k0 + kOfB, n0 + 3u));
    workgroupBarrier();
    for (var k = 0u; k < 16u; k++) {
      let a0 = tileA[k * 33u + y0];
      let a1 = tileA[k * 33u + y0 + 16u];
      let b0 = tileB[k * 17u + x0];
      s0_0 = s0_0 + a0.x * b0;
      s1_0 = s1_0 + a0.y * b0;
      s2_0 = s2_0 + a0.z * b0;
      s3_0 = s3_0 + a0.w * b0;
      s4_0 = s4_0 + a1.x * b0;
      s5_0 = s5_0 + a1.y * b0;
      s6_0 = s6_0 + a1.z * b0;
      s7_0 = s7_0 + a1.w * b0;
    }
    workgroupBarrier();
  }

  let row = row0 + y0 * 4u;
  let col = col0 + x0 * 4u;
  put4(row, col, s0_0);
  put4(row + 1u, col, s1_0);
  put4(row + 2u, col, s2_0);
  put4(row + 3u, col, s3_0);
  put4(row + 64u, col, s4_0);
  put4(row + 65u, col, s5_0);
  put4(row + 66u, col, s6_0);
  put4(row + 67u, col, s7_0);
}
