// Adds the sum of every column: y[c] += sum_n x[n, c]. For bias gradients and partial sums.
//
//   x  [N, C]
//   y  [C]     accumulates
//
// Grid      one thread per column, rows in ascending order.
// Checked   against a float64 sum in test/gpu/column_sum.test.ts.

struct Params {
  N: u32,
  C: u32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let c = (wg.y * grid.x + wg.x) * WG + tid;
  if (c >= params.C) { return; }
  var sum = 0.0;
  for (var n = 0u; n < params.N; n++) {
    sum += x[n * params.C + c];
  }
  y[c] += sum;
}
