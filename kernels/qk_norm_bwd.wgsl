// Backward of qk_norm.wgsl for its input, in place on the fused gradient; v's part stays unchanged:
//   dx = rstd * (weight * dy - x * rstd^2 * mean over D of (weight * dy * x))
//
//   qkv     [N, (H + 2K) * D]   before the norm
//   weight  [2, D]              gain of q, gain of k
//   rstd    [N, H + K]          from qk_norm.wgsl
//   dqkv    [N, (H + 2K) * D]   in: gradient of the normed q and k; out: of the product
//
// Grid      LANES threads per (row, q or k head), WG / LANES of these per workgroup; each thread has its own columns of dqkv.
// Checked   against rmsnormBwd() in src/extensions/verify/reference/ops.ts by test/gpu/qk_norm_bwd_weight.test.ts.

struct Params {
  N: u32,
  H: u32,
  K: u32,
  D: u32,
}

override WG: u32 = 64u; // threads in a workgroup
override LANES: u32 = 64u; // threads that share a head; a power of two that divides WG

alias Act = f32; // activations: f16 if they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> qkv: array<Act>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> rstd: array<f32>;
@group(0) @binding(3) var<storage, read_write> dqkv: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let normed = params.H + params.K;
  let t = (wg.y * grid.x + wg.x) * (WG / LANES) + tid / LANES;
  let lane = tid % LANES;
  let n = t / normed;
  let head = t % normed;
  let base = (n * (normed + params.K) + head) * params.D;
  let gain = select(0u, params.D, head >= params.H);
  let D = select(0u, params.D, n < params.N); // no early return: barriers need every thread

  var sum = 0.0;
  for (var d = lane; d < D; d += LANES) {
    sum += f32(qkv[base + d]) * dqkv[base + d] * weight[gain + d];
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

  let r = rstd[min(t, params.N * normed - 1u)];
  let mean = sum / f32(params.D) * r * r;
  for (var d = lane; d < D; d += LANES) {
    dqkv[base + d] = r * (weight[gain + d] * dqkv[base + d] - f32(qkv[base + d]) * mean);
  }
}
