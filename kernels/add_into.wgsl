// Adds x to y, element by element: y += x.
//
//   x  [n]
//   y  [n]  read and written
//
// Grid      one thread per element.
// Numerics  one rounding.
// Checked   against a loop in test/gpu/add_into.test.ts.

struct Params {
  n: u32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.n) { return; }
  y[i] += x[i];
}
