// Grouped-query attention of every row over two key ranges, [shared prefix | own sequence], with an online softmax:
//   out[n, h] = sum_j softmax_j(q[n, h] . k[j, kv(h)] / sqrt(D)) v[j, kv(h)],  kv(h) = h / (H / K)
//
//   q       [N, H * D]         rotated
//   kv      [rows, 2 * K * D]  rotated k heads, then v heads
//   ranges  [N, 4]             prefixStart, prefixEnd, ownStart, ownEnd: half-open ranges of kv rows
//   out     [N, H * D]         written
//   lse     [N, H]             log sum exp of the scaled scores, for the backward pass
//
// Grid      one thread per (row, head), heads slowest, so that neighbouring threads share their keys. D <= 128.
// Numerics  keys in ascending order in one thread: decoding and training sum in the same order, bit for bit.
// Paper     Milakov & Gimelshein 2018, arXiv:1805.02867 (online softmax).
// Checked   against attention() in src/extensions/verify/reference/ops.ts by test/gpu/attention.test.ts.

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
@group(0) @binding(2) var<storage, read> ranges: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<Act>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

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

  var acc: array<f32, 128>;
  var top = -3.0e38;
  var sum = 0.0;
  for (var part = 0u; part < 2u; part++) {
    let end = ranges[n * 4u + part * 2u + 1u];
    for (var j = ranges[n * 4u + part * 2u]; j < end; j++) {
      let key = j * 2u * params.K * D + kHead;
      var score = 0.0;
      for (var d = 0u; d < D; d++) {
        score += f32(q[at + d]) * f32(kv[key + d]);
      }
      score *= params.scale;
      let newTop = max(top, score);
      let keep = exp(top - newTop);
      let p = exp(score - newTop);
      top = newTop;
      sum = sum * keep + p;
      for (var d = 0u; d < D; d++) {
        acc[d] = acc[d] * keep + p * f32(kv[key + vHead + d]);
      }
    }
  }
  for (var d = 0u; d < D; d++) {
    out[at + d] = Act(acc[d] / sum);
  }
  lse[n * params.H + h] = top + log(sum);
}
