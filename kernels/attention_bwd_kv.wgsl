// Attention backward for k and v. In the packed layout the queries that see key row j are one contiguous range,
// j .. queryEnd[j]: to the end of the group for a prompt row, to the end of the sample for a response row.
//   dv_j = sum_n p_nj dout_n,  dk_j = sum_n ds_nj q_n   (p and ds as in attention_bwd_q.wgsl), over the H / K query heads
//
//   q, dout     [N, H * D]
//   kv          [N, 2 * K * D]
//   lse, delta  [N, H]
//   queryEnd    [N]
//   dkv         [N, 2 * K * D]  written
//
// Grid      one thread per (key row, key/value head). D <= 128.
// Checked   against attentionBwd() in src/extensions/verify/reference/ops.ts by test/gpu/attention_bwd.test.ts.

struct Params {
  N: u32,
  H: u32,
  K: u32,
  D: u32,
  scale: f32,
}

override WG: u32 = 64u;

alias Act = f32; // activations: f16 if they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> q: array<Act>;
@group(0) @binding(1) var<storage, read> kv: array<Act>;
@group(0) @binding(2) var<storage, read> dout: array<f32>;
@group(0) @binding(3) var<storage, read> lse: array<f32>;
@group(0) @binding(4) var<storage, read> delta: array<f32>;
@group(0) @binding(5) var<storage, read> queryEnd: array<u32>;
@group(0) @binding(6) var<storage, read_write> dkv: array<f32>;
@group(0) @binding(7) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let t = (wg.y * grid.x + wg.x) * WG + tid;
  if (t >= params.N * params.K) { return; }
  let j = t % params.N;
  let kvHead = t / params.N;
  let D = params.D;
  let share = params.H / params.K;
  let key = (j * 2u * params.K + kvHead) * D;
  let vHead = params.K * D;

  var dk: array<f32, 128>;
  var dv: array<f32, 128>;
  for (var n = j; n < queryEnd[j]; n++) {
    for (var h = kvHead * share; h < (kvHead + 1u) * share; h++) {
      let at = (n * params.H + h) * D;
      var score = 0.0;
      var dp = 0.0;
      for (var d = 0u; d < D; d++) {
        score += f32(q[at + d]) * f32(kv[key + d]);
        dp += dout[at + d] * f32(kv[key + vHead + d]);
      }
      let p = exp(score * params.scale - lse[n * params.H + h]);
      let ds = p * (dp - delta[n * params.H + h]) * params.scale;
      for (var d = 0u; d < D; d++) {
        dk[d] += ds * f32(q[at + d]);
        dv[d] += p * dout[at + d];
      }
    }
  }
  for (var d = 0u; d < D; d++) {
    dkv[key + d] = dk[d];
    dkv[key + vHead + d] = dv[d];
  }
}
