// Backward of qk_norm.wgsl for its two gains, first half, before qk_norm_bwd.wgsl overwrites dqkv:
//   partial[b, s * D + d] = sum over the rows n of block b and the heads of s (q heads for 0, k heads for 1) of dy * x * rstd
// column_sum.wgsl then sums the blocks.
//
//   qkv, dqkv  [N, (H + 2K) * D]   before the norm; gradient of its output
//   rstd       [N, H + K]
//   partial    [ceil(N / ROWS), 2 * D]  written
//
// Grid      one thread per (block, gain); a block is ROWS rows, so the order of the sum is fixed by N alone.
// Checked   against rmsnormBwd() in src/extensions/verify/reference/ops.ts by test/gpu/qk_norm_bwd_weight.test.ts.

struct Params {
  N: u32,
  H: u32,
  K: u32,
  D: u32,
}

override WG: u32 = 64u;
const ROWS: u32 = 64u; // also in src/gpu/ops/rmsnorm.ts

alias Act = f32; // activations: f16 if they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> qkv: array<Act>;
@group(0) @binding(1) var<storage, read> rstd: array<f32>;
@group(0) @binding(2) var<storage, read> dqkv: array<f32>;
@group(0) @binding(3) var<storage, read_write> partial: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = (wg.y * grid.x + wg.x) * WG + tid;
  let blocks = (params.N + ROWS - 1u) / ROWS;
  if (i >= blocks * 2u * params.D) { return; }
  let d = i % params.D;
  let isKey = i / params.D % 2u == 1u;
  let firstHead = select(0u, params.H, isKey);
  let endHead = select(params.H, params.H + params.K, isKey);
  let first = i / (2u * params.D) * ROWS;
  var sum = 0.0;
  for (var n = first; n < min(first + ROWS, params.N); n++) {
    for (var head = firstHead; head < endHead; head++) {
      let at = (n * (params.H + 2u * params.K) + head) * params.D + d;
      sum += dqkv[at] * f32(qkv[at]) * rstd[n * (params.H + params.K) + head];
    }
  }
  partial[i] = sum;
}
