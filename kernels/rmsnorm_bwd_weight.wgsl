// RMSNorm backward for the gain, first half: partial[b, c] = sum over the rows n of block b of dy * x * rstd.
// column_sum.wgsl then sums the blocks.
//
//   x, dy    [N, C]
//   rstd     [N]
//   partial  [ceil(N / ROWS), C]  written
//
// Grid      one thread per (block, channel); a block is ROWS rows, so the order of the sum is fixed by N alone.
// Checked   against rmsnormBwd() in src/extensions/verify/reference/ops.ts by test/gpu/rmsnorm_bwd_weight.test.ts.

struct Params {
  N: u32,
  C: u32,
}

override WG: u32 = 64u;
const ROWS: u32 = 64u; // also in src/gpu/ops/rmsnorm.ts

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> rstd: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> partial: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  let blocks = (params.N + ROWS - 1u) / ROWS;
  if (i >= blocks * params.C) { return; }
  let c = i % params.C;
  let first = i / params.C * ROWS;
  let end = min(first + ROWS, params.N);
  let C = params.C;
  var sum = 0.0;
  var n = first;
  for (; n + 3u < end; n += 4u) { // four rows per iteration, like rmsnorm.wgsl
    let at = n * C + c;
    let g = vec4f(dy[at], dy[at + C], dy[at + 2u * C], dy[at + 3u * C]);
    let v = vec4f(x[at], x[at + C], x[at + 2u * C], x[at + 3u * C]);
    let part = g * v * vec4f(rstd[n], rstd[n + 1u], rstd[n + 2u], rstd[n + 3u]);
    sum = sum + part.x + part.y + part.z + part.w;
  }
  for (; n < end; n++) {
    sum += dy[n * C + c] * x[n * C + c] * rstd[n];
  }
  partial[i] = sum;
}
