// Qwen3's RMSNorm over each q and k head, between the fused product and RoPE; v passes unchanged:
//   y = x * weight * rstd,  rstd = 1 / sqrt(mean over D of x^2 + eps), with the gain of q or of k
//
//   qkv     [N, (H + 2K) * D]   q heads, then k heads, then v heads
//   weight  [2, D]              gain of q, gain of k
//   y       [N, (H + 2K) * D]   written
//   rstd    [N, H + K]          saved for qk_norm_bwd.wgsl
//
// Grid      LANES threads per (row, head), WG / LANES of these per workgroup, folded over x and y past 65535 workgroups.
// Numerics  like rmsnorm.wgsl: the order of the sum is fixed by LANES alone, so decoding and training agree bit for bit.
// Paper     Qwen3 technical report, arXiv:2505.09388; Henry et al. 2020, arXiv:2010.04245.
// Checked   against rmsnorm() in src/extensions/verify/reference/ops.ts by test/gpu/qk_norm.test.ts.

struct Params {
  N: u32,
  H: u32,
  K: u32,
  D: u32,
  eps: f32,
}

override WG: u32 = 64u; // threads in a workgroup
override LANES: u32 = 64u; // threads that share a head; a power of two that divides WG

alias Act = f32; // activations: f16 if they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> qkv: array<Act>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<Act>;
@group(0) @binding(3) var<storage, read_write> rstd: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let heads = params.H + 2u * params.K;
  let t = (wg.y * grid.x + wg.x) * (WG / LANES) + tid / LANES;
  let lane = tid % LANES;
  let n = t / heads;
  let head = t % heads;
  let base = t * params.D;
  let D = select(0u, params.D, n < params.N); // no early return: barriers need every thread
  let normed = head < params.H + params.K;

  var sum = 0.0;
  for (var d = lane; d < D; d += LANES) {
    sum += f32(qkv[base + d]) * f32(qkv[base + d]);
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

  if (!normed) {
    for (var d = lane; d < D; d += LANES) {
      y[base + d] = qkv[base + d];
    }
    return;
  }
  let scale = inverseSqrt(sum / f32(params.D) + params.eps);
  if (lane == 0u && n < params.N) { rstd[n * (params.H + params.K) + head] = scale; }
  let gain = select(0u, params.D, head >= params.H);
  for (var d = lane; d < D; d += LANES) {
    y[base + d] = Act(f32(qkv[base + d]) * scale * weight[gain + d]);
  }
}
