// RMSNorm forward: y = x * weight * rstd, with rstd = 1 / sqrt(mean(x^2) + eps), row by row.
//
//   x       [N, C]   input rows
//   weight  [C]      learned gain
//   y       [N, C]   output
//   rstd    [N]      saved for rmsnorm_bwd.wgsl
//
// Grid      LANES threads per row, WG / LANES rows per workgroup, folded over x and y past 65535 workgroups. Any N, C >= 1.
// Numerics  sums in f32, in an order fixed by LANES alone: one adapter must use one value for all batches.
// Paper     Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4.
// Checked   against rmsnorm() in src/extensions/verify/reference/ops.ts by test/gpu/rmsnorm.test.ts.

struct Params {
  N: u32,
  C: u32,
  eps: f32,
}

override WG: u32 = 64u; // threads in a workgroup
override LANES: u32 = 64u; // threads that share a row; a power of two that divides WG

alias Act = f32; // activations: f16 if they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<Act>;
@group(0) @binding(3) var<storage, read_write> rstd: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let row = (wg.y * grid.x + wg.x) * (WG / LANES) + tid / LANES;
  let lane = tid % LANES;
  let base = row * params.C;
  let C = select(0u, params.C, row < params.N); // no early return: barriers need every thread

  // Four columns per iteration: on a software adapter an iteration costs as much as a load.
  var sum = 0.0;
  var c = lane;
  for (; c + 3u * LANES < C; c += 4u * LANES) {
    let at = base + c;
    let v = vec4f(x[at], x[at + LANES], x[at + 2u * LANES], x[at + 3u * LANES]);
    sum = sum + v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  for (; c < C; c += LANES) {
    sum += x[base + c] * x[base + c];
  }
  if (LANES > 1u) {
    sums[tid] = sum;
    workgroupBarrier();
    for (var stride = LANES / 2u; stride > 0u; stride /= 2u) {
      if (lane < stride) { sums[tid] += sums[tid + stride]; }
      workgroupBarrier();
    }
    sum = sums[tid - lane];
  }

  let scale = inverseSqrt(sum / f32(params.C) + params.eps);
  if (lane == 0u && row < params.N) { rstd[row] = scale; }
  for (c = lane; c + 3u * LANES < C; c += 4u * LANES) {
    let at = base + c;
    let v = vec4f(x[at], x[at + LANES], x[at + 2u * LANES], x[at + 3u * LANES]);
    let gain = vec4f(weight[c], weight[c + LANES], weight[c + 2u * LANES], weight[c + 3u * LANES]);
    let value = vec4<Act>(v * scale * gain);
    y[at] = value.x;
    y[at + LANES] = value.y;
    y[at + 2u * LANES] = value.z;
    y[at + 3u * LANES] = value.w;
  }
  for (; c < C; c += LANES) {
    y[base + c] = Act(x[base + c] * scale * weight[c]);
  }
}
