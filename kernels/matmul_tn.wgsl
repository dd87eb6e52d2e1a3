// Weight gradient y += a^T b.
//
//   a  [K, M]  rows are tokens
//   b  [K, N]
//   y  [M, N]  accumulates
//
// Checked   against a float64 product by test/gpu/matmul.test.ts.

struct Params {
  M: u32,
  N: u32,
  K: u32,
}

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let t = (wg.y * grid.x + wg.x) * 64u + tid;
  if (t >= params.M * params.N) { return; }
  let m = t / params.N;
  let n = t % params.N;
  var acc = 0.0;
  for (var k = 0u; k < params.K; k++) {
    acc = acc + a[k * params.M + m] * b[k * params.N + n];
  }
  y[t] += acc;
}
