// Attention backward for q, and delta = dout . out, which attention_bwd_kv.wgsl needs:
//   p_j = exp(q . k_j * scale - lse),  ds_j = p_j (dout . v_j - delta) * scale,  dq = sum_j ds_j k_j
//
//   q, out, dout  [N, H * D]
//   kv            [N, 2 * K * D]
//   lse           [N, H]
//   ranges        [N, 4]       as in attention.wgsl
//   dq            [N, H * D]   written
//   delta         [N, H]       written
//
// Grid      one thread per (row, head). D <= 128.
// Paper     Dao et al. 2022, arXiv:2205.14135, appendix B.
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
@group(0) @binding(2) var<storage, read> out: array<Act>;
@group(0) @binding(3) var<storage, read> dout: array<f32>;
@group(0) @binding(4) var<storage, read> lse: array<f32>;
@group(0) @binding(5) var<storage, read> ranges: array<u32>;
@group(0) @binding(6) var<storage, read_write> dq: array<f32>;
@group(0) @binding(7) var<storage, read_write> delta: array<f32>;
@group(0) @binding(8) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let t = (wg.y * grid.x + wg.x) * WG + tid;
  if (t >= params.N * params.H) { return; }
  let n = t % params.N;
  let h = t / params.N;
  let D = params.D;
  let at = (n * params.H + h) * D;
  let kHead = h / (params.H / params.K) * D;
  let vHead = params.K * D;

  var dot = 0.0;
  for (var d = 0u; d < D; d++) {
    dot += dout[at + d] * f32(out[at + d]);
  }
  delta[n * params.H + h] = dot;

  var acc: array<f32, 128>;
  for (var part = 0u; part < 2u; part++) {
    let end = ranges[n * 4u + part * 2u + 1u];
    for (var j = ranges[n * 4u + part * 2u]; j < end; j++) {
      let key = j * 2u * params.K * D + kHead;
      var score = 0.0;
      var dp = 0.0;
      for (var d = 0u; d < D; d++) {
        score += f32(q[at + d]) * f32(kv[key + d]);
        dp += dout[at + d] * f32(kv[key + vHead + d]);
      }
      let ds = exp(score * params.scale - lse[n * params.H + h]) * (dp - dot) * params.scale;
      for (var d = 0u; d < D; d++) {
        acc[d] += ds * f32(kv[key + d]);
      }
    }
  }
  for (var d = 0u; d < D; d++) {
    dq[at + d] = acc[d];
  }
}
