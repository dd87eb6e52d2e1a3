// Adds a bias to every row in place: y[n, c] += bias[c] (Qwen2's q, k and v products).
//
//   bias  [C]
//   y     [N, C]  accumulates
//
// Grid      one thread per element.
// Checked   by test/gpu/bias_rows.test.ts.

struct Params {
  N: u32,
  C: u32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> bias: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.N * params.C) { return; }
  y[i] += bias[i % params.C];
}
