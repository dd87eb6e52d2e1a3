// Matrix product y = x B, optionally added to r.
//
//   x  [M, K]
//   b  [K, N]
//   r  [M, N]  added when ADD = 1 (residual stream); any buffer otherwise
//   y  [M, N]  written
//
// Grid      one thread per 4 x 4 outputs. Any M, N, K >= 1.
// Numerics  every output is summed over k in ascending order by one thread: no result depends on M or on the tile.
// Checked   against a float64 product by test/gpu/matmul.test.ts.

struct Params {
  M: u32,
  N: u32,
  K: u32,
}

override ADD: u32 = 0u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read> r: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let t = (wg.y * grid.x + wg.x) * 64u + tid;
  if (t >= params.M * params.N) { return; }
  let m = t / params.N;
  let n = t % params.N;
  var acc = 0.0;
  for (var k = 0u; k < params.K; k++) {
    acc = acc + x[m * params.K + k] * b[k * params.N + n];
  }
  if (ADD == 1u) { acc += r[t]; }
  y[t] = acc;
}
