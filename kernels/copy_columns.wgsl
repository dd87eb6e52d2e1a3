// Copies columns of one matrix to columns of another: y[r, firstY + c] = x[r, firstX + c].
//
//   x  [R, rowX]
//   y  [R, rowY]  the other columns stay unchanged
//
// Grid      one thread per (row, copied column). Numerics: a copy, exact.
// Checked   against a copy in test/gpu/copy_columns.test.ts.

struct Params {
  R: u32,
  C: u32,       // columns to copy
  firstX: u32,
  rowX: u32,    // columns of x
  firstY: u32,
  rowY: u32,    // columns of y
}

override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  if (i >= params.R * params.C) { return; }
  let r = i / params.C;
  let c = i % params.C;
  y[r * params.rowY + params.firstY + c] = x[r * params.rowX + params.firstX + c];
}
