// Gathers rows: y[r] = x[rows[r]].
//
//   x     [N, C]
//   rows  [R]
//   y     [R, C]  written
//
// Grid      one thread per element of y.
// Checked   against embedding() in src/extensions/verify/reference/ops.ts by test/gpu/gather_rows.test.ts.

struct Params {
  R: u32,
  C: u32,
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.R * params.C) { return; }
  y[i] = x[rows[i / params.C] * params.C + i % params.C];
}
