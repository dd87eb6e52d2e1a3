// attention.wgsl for head dim 64, with everything in registers and 1 row a thread; same inputs, same outputs:
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
  D: u32,      // 64
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = 64u; // threads in a workgroup
const D4 = 16u; // vec4s in a head
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
    let q0_0 = vec4f(q[at0 + 0u]); let q0_1 = vec4f(q[at0 + 1u]); let q0_2 = vec4f(q[at0 + 2u]); let q0_3 = vec4f(q[at0 + 3u]); let q0_4 = vec4f(q[at0 + 4u]); let q0_5 = vec4f(q[at0 + 5u]); let q0_6 = vec4f(q[at0 + 6u]); let q0_7 = vec4f(q[at0 + 7u]); let q0_8 = vec4f(q[at0 + 8u]); let q0_9 = vec4f(q[at0 + 9u]); let q0_10 = vec4f(q[at0 + 10u]); let q0_11 = vec4f(q[at0 + 11u]); let q0_12 = vec4f(q[at0 + 12u]); let q0_13 = vec4f(q[at0 + 13u]); let q0_14 = vec4f(q[at0 + 14u]); let q0_15 = vec4f(q[at0 + 15u]);
    var o0_0 = vec4f(); var o0_1 = vec4f(); var o0_2 = vec4f(); var o0_3 = vec4f(); var o0_4 = vec4f(); var o0_5 = vec4f(); var o0_6 = vec4f(); var o0_7 = vec4f(); var o0_8 = vec4f(); var o0_9 = vec4f(); var o0_10 = vec4f(); var o0_11 = vec4f(); var o0_12 = vec4f(); var o0_13 = vec4f(); var o0_14 = vec4f(); var o0_15 = vec4f();
    var top0 = -3.0e38; var sum0 = 0.0;

    for (var part = 0u; part < 2u; part++) {
      let own = part == 1u;
      let stop = select(span.y, end0, own);
      for (var j = select(span.x, span.z, own); j < stop; j++) {
        let key = j * 2u * vHead + kHead;
        let k_0 = vec4f(kv[key + 0u]); let k_1 = vec4f(kv[key + 1u]); let k_2 = vec4f(kv[key + 2u]); let k_3 = vec4f(kv[key + 3u]); let k_4 = vec4f(kv[key + 4u]); let k_5 = vec4f(kv[key + 5u]); let k_6 = vec4f(kv[key + 6u]); let k_7 = vec4f(kv[key + 7u]); let k_8 = vec4f(kv[key + 8u]); let k_9 = vec4f(kv[key + 9u]); let k_10 = vec4f(kv[key + 10u]); let k_11 = vec4f(kv[key + 11u]); let k_12 = vec4f(kv[key + 12u]); let k_13 = vec4f(kv[key + 13u]); let k_14 = vec4f(kv[key + 14u]); let k_15 = vec4f(kv[key + 15u]);
        let v_0 = vec4f(kv[key + vHead + 0u]); let v_1 = vec4f(kv[key + vHead + 1u]); let v_2 = vec4f(kv[key + vHead + 2u]); let v_3 = vec4f(kv[key + vHead + 3u]); let v_4 = vec4f(kv[key + vHead + 4u]); let v_5 = vec4f(kv[key + vHead + 5u]); let v_6 = vec4f(kv[key + vHead + 6u]); let v_7 = vec4f(kv[key + vHead + 7u]); let v_8 = vec4f(kv[key + vHead + 8u]); let v_9 = vec4f(kv[key + vHead + 9u]); let v_10 = vec4f(kv[key + vHead + 10u]); let v_11 = vec4f(kv[key + vHead + 11u]); let v_12 = vec4f(kv[key + vHead + 12u]); let v_13 = vec4f(kv[key + vHead + 13u]); let v_14 = vec4f(kv[key + vHead + 14u]); let v_15 = vec4f(kv[key + vHead + 15u]);
        {
          let score = fold(q0_0 * k_0 + q0_1 * k_1 + q0_2 * k_2 + q0_3 * k_3 + q0_4 * k_4 + q0_5 * k_5 + q0_6 * k_6 + q0_7 * k_7 + q0_8 * k_8 + q0_9 * k_9 + q0_10 * k_10 + q0_11 * k_11 + q0_12 * k_12 + q0_13 * k_13 + q0_14 * k_14 + q0_15 * k_15) * params.scale;
          let newTop = max(top0, score);
          let keep = exp(top0 - newTop);
          let p = exp(score - newTop);
          top0 = newTop; sum0 = sum0 * keep + p;
          o0_0 = o0_0 * keep + p * v_0; o0_1 = o0_1 * keep + p * v_1; o0_2 = o0_2 * keep + p * v_2; o0_3 = o0_3 * keep + p * v_3; o0_4 = o0_4 * keep + p * v_4; o0_5 = o0_5 * keep + p * v_5; o0_6 = o0_6 * keep + p * v_6; o0_7 = o0_7 * keep + p * v_7; o0_8 = o0_8 * keep + p * v_8; o0_9 = o0_9 * keep + p * v_9; o0_10 = o0_10 * keep + p * v_10; o0_11 = o0_11 * keep + p * v_11; o0_12 = o0_12 * keep + p * v_12; o0_13 = o0_13 * keep + p * v_13; o0_14 = o0_14 * keep + p * v_14; o0_15 = o0_15 * keep + p * v_15;
        }
      }
    }

    {
      out[at0 + 0u] = Act(o0_0 / sum0); out[at0 + 1u] = Act(o0_1 / sum0); out[at0 + 2u] = Act(o0_2 / sum0); out[at0 + 3u] = Act(o0_3 / sum0); out[at0 + 4u] = Act(o0_4 / sum0); out[at0 + 5u] = Act(o0_5 / sum0); out[at0 + 6u] = Act(o0_6 / sum0); out[at0 + 7u] = Act(o0_7 / sum0); out[at0 + 8u] = Act(o0_8 / sum0); out[at0 + 9u] = Act(o0_9 / sum0); out[at0 + 10u] = Act(o0_10 / sum0); out[at0 + 11u] = Act(o0_11 / sum0); out[at0 + 12u] = Act(o0_12 / sum0); out[at0 + 13u] = Act(o0_13 / sum0); out[at0 + 14u] = Act(o0_14 / sum0); out[at0 + 15u] = Act(o0_15 / sum0);
      lse[row0 * params.H + head] = top0 + log(sum0);
    }
    first = end;
  }
}
