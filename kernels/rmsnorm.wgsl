// RMSNorm forward: y = x * weight * rstd, with rstd = 1 / sqrt(mean(x^2) + eps), row by row.
//
//   x       [N, C]   input rows
//   weight  [C]      learned gain
//   y       [N, C]   output
//   rstd    [N]      saved for rmsnorm_bwd.wgsl
//
// Grid      one workgroup per row, folded over x and y when N > 65535. Any N >= 1, any C >= 1.
// Numerics  sums in f32, in an order fixed by WG alone: one adapter must use one WG for all batches.
// Paper     Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4.
// Checked   against rmsnorm() in src/model/reference.ts by test/gpu/rmsnorm.test.ts.

struct Params {
  N: u32,
  C: u32,
  eps: f32,
}

override WG: u32 = 64u; // threads a row; a power of two

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> rstd: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let row = wg.y * grid.x + wg.x;
  if (row >= params.N) { return; } // the whole workgroup leaves together, so the barriers below are safe
  let base = row * params.C;

  var sum = 0.0;
  for (var c = tid; c < params.C; c += WG) {
    sum += x[base + c] * x[base + c];
  }
  sums[tid] = sum;
  workgroupBarrier();
  for (var stride = WG / 2u; stride > 0u; stride /= 2u) {
    if (tid < stride) { sums[tid] += sums[tid + stride]; }
    workgroupBarrier();
  }

  let scale = inverseSqrt(sums[0] / f32(params.C) + params.eps);
  if (tid == 0u) { rstd[row] = scale; }
  for (var c = tid; c < params.C; c += WG) {
    y[base + c] = x[base + c] * scale * weight[c];
  }
}
