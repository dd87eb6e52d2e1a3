// RMSNorm backward for the input, added to the gradient that bypasses the norm:
//   dx = dres + rstd * (weight * dy - x * rstd^2 * mean(weight * dy * x))
//
//   x, dy   [N, C]   the norm's input and the gradient of its output
//   weight  [C]
//   rstd    [N]      from rmsnorm.wgsl
//   dres    [N, C]   gradient of the residual stream past this norm; used if ADD = 1
//   dx      [N, C]   written
//
// Grid      LANES threads per row, WG / LANES rows per workgroup, like rmsnorm.wgsl.
//           The gain's gradient is rmsnorm_bwd_weight.wgsl.
// Checked   against rmsnormBwd() in src/extensions/verify/reference/ops.ts by test/gpu/rmsnorm_bwd.test.ts.

struct Params {
  N: u32,
  C: u32,
}

override WG: u32 = 64u; // threads in a workgroup
override LANES: u32 = 64u; // threads that share a row; a power of two that divides WG
override ADD: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> rstd: array<f32>;
@group(0) @binding(3) var<storage, read> dy: array<f32>;
@group(0) @binding(4) var<storage, read> dres: array<f32>;
@group(0) @binding(5) var<storage, read_write> dx: array<f32>;
@group(0) @binding(6) var<uniform> params: Params;

var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let row = (wg.y * grid.x + wg.x) * (WG / LANES) + tid / LANES;
  let lane = tid % LANES;
  let base = row * params.C;
  let C = select(0u, params.C, row < params.N); // no early return: barriers need every thread

  // Four columns per iteration, like rmsnorm.wgsl.
  var sum = 0.0;
  var c = lane;
  for (; c + 3u * LANES < C; c += 4u * LANES) {
    let at = base + c;
    let v = vec4f(x[at], x[at + LANES], x[at + 2u * LANES], x[at + 3u * LANES]);
    let g = vec4f(dy[at], dy[at + LANES], dy[at + 2u * LANES], dy[at + 3u * LANES]);
    let gain = vec4f(weight[c], weight[c + LANES], weight[c + 2u * LANES], weight[c + 3u * LANES]);
    let part = v * g * gain;
    sum = sum + part.x + part.y + part.z + part.w;
  }
  for (; c < C; c += LANES) {
    sum += x[base + c] * dy[base + c] * weight[c];
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

  let r = rstd[min(row, params.N - 1u)];
  let mean = sum / f32(params.C) * r * r;
  for (c = lane; c + 3u * LANES < C; c += 4u * LANES) {
    let at = base + c;
    let v = vec4f(x[at], x[at + LANES], x[at + 2u * LANES], x[at + 3u * LANES]);
    let g = vec4f(dy[at], dy[at + LANES], dy[at + 2u * LANES], dy[at + 3u * LANES]);
    let gain = vec4f(weight[c], weight[c + LANES], weight[c + 2u * LANES], weight[c + 3u * LANES]);
    var d = r * (gain * g - v * mean);
    if (ADD == 1u) { d += vec4f(dres[at], dres[at + LANES], dres[at + 2u * LANES], dres[at + 3u * LANES]); }
    dx[at] = d.x;
    dx[at + LANES] = d.y;
    dx[at + 2u * LANES] = d.z;
    dx[at + 3u * LANES] = d.w;
  }
  for (; c < C; c += LANES) {
    var d = r * (weight[c] * dy[base + c] - x[base + c] * mean);
    if (ADD == 1u) { d += dres[base + c]; }
    dx[base + c] = d;
  }
}
