// attention.wgsl for head dim 16, with everything in registers and 1 row a thread; same inputs, same outputs:
//   out[n, h] = sum_j softmax_j(q[n, h] . k[j, kv(h)] / sqrt(D)) v[j, kv(h)],  kv(h) = h / (H / K)
//
//   q       [N, H * D]         rotated; here and below as vec4
//   kv      [rows, 2 * K * D]  rotated k heads, then v heads
//   ranges  [N] vec4u          prefixStart, prefixEnd, ownStart, ownEnd: half-open ranges of kv rows
//   out     [N, H * D]         written
//   lse     [N, H]             log sum exp of the scaled scores, for the backward pass
//
// Grid      one thread per (row, head), heads fastest: neighbouring threads run equally long and load different keys.
// Numerics  keys in ascending order in one thread, the same bits for any N and any tile: decoding equals training.
// Paper     Milakov & Gimelshein 2018, arXiv:1805.02867 (online softmax).
// Checked   against attention() in src/model/reference/ops.ts by test/gpu/attention.test.ts. Printed by scripts/gen-attention.mjs: edit scripts/lib/attentionTile.mjs.

struct Params {
  N: u32,      // query rows
  H: u32,      // query heads
  K: u32,      // key/value heads
  D: u32,      // 16
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = 64u; // threads in a workgroup
const D4 = 4u; // vec4s in a head
alias Act = vec4f; // of activations: vec4h where they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> q: array<Act>;
@group(0) @binding(1) var<storage, read> kv: array<Act>;
@group(0) @binding(2) var<storage, read> ranges: array<vec4u>;
@group(0) @binding(3) var<storage, read_write> out: array<Act>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

fn fold(x: vec4f) -> f32 { return (x.x + x.y) + (x.z + x.w); }

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let t = (wg.y * grid.x + wg.x) * WG + tid;
  let head = t % params.H;
  let tile = t / params.H * 1u;
  if (tile >= params.N) { return; }
  let kHead = head / (params.H / params.K) * D4;
  let vHead = params.K * D4;

  var first = tile;
  while (first < min(tile + 1u, params.N)) {
    let span = ranges[first];
    var end = first + 1u;
    let row0 = min(first + 0u, end - 1u);
    let end0 = span.w;
    let at0 = (row0 * params.H + head) * D4;
    let q0_0 = vec4f(q[at0 + 0u]); let q0_1 = vec4f(q[at0 + 1u]); let q0_2 = vec4f(q[at0 + 2u]); let q0_3 = vec4f(q[at0 + 3u]);
    var o0_0 = vec4f(); var o0_1 = vec4f(); var o0_2 = vec4f(); var o0_3 = vec4f();
    var top0 = -3.0e38; var sum0 = 0.0;

    for (var part = 0u; part < 2u; part++) {
      let own = part == 1u;
      let stop = select(span.y, end0, own);
      for (var j = select(span.x, span.z, own); j < stop; j++) {
        let key = j * 2u * vHead + kHead;
        let k_0 = vec4f(kv[key + 0u]); let k_1 = vec4f(kv[key + 1u]); let k_2 = vec4f(kv[key + 2u]); let k_3 = vec4f(kv[key + 3u]);
        let v_0 = vec4f(kv[key + vHead + 0u]); let v_1 = vec4f(kv[key + vHead + 1u]); let v_2 = vec4f(kv[key + vHead + 2u]); let v_3 = vec4f(kv[key + vHead + 3u]);
        {
          let score = fold(q0_0 * k_0 + q0_1 * k_1 + q0_2 * k_2 + q0_3 * k_3) * params.scale;
          let newTop = max(top0, score);
          let keep = exp(top0 - newTop);
          let p = exp(score - newTop);
          top0 = newTop; sum0 = sum0 * keep + p;
          o0_0 = o0_0 * keep + p * v_0; o0_1 = o0_1 * keep + p * v_1; o0_2 = o0_2 * keep + p * v_2; o0_3 = o0_3 * keep + p * v_3;
        }
      }
    }

    {
      out[at0 + 0u] = Act(o0_0 / sum0); out[at0 + 1u] = Act(o0_1 / sum0); out[at0 + 2u] = Act(o0_2 / sum0); out[at0 + 3u] = Act(o0_3 / sum0);
      lse[row0 * params.H + head] = top0 + log(sum0);
    }
    first = end;
  }
}
