// attention.wgsl for head dim 24, with everything in registers and 2 rows a thread; same inputs, same outputs:
//   out[n, h] = sum_j softmax_j(q[n, h] . k[j, kv(h)] / sqrt(D)) v[j, kv(h)],  kv(h) = h / (H / K)
//
//   q       [N, H * D]         rotated; here and below as vec4
//   kv      [rows, 2 * K * D]  rotated k heads, then v heads
//   ranges  [N] vec4u          prefixStart, prefixEnd, ownStart, ownEnd: half-open ranges of kv rows
//   out     [N, H * D]         written
//   lse     [N, H]             log sum exp of the scaled scores, for the backward pass
//
// Grid      one thread per (tile of 2 rows, head), heads fastest: neighbouring threads run equally long and load different keys.
// Numerics  keys in ascending order in one thread, the same bits for any N and any tile: decoding equals training.
//           A key is loaded once for 2 rows; to a row that does not see it, it adds 0 (so it must be finite).
// Paper     Milakov & Gimelshein 2018, arXiv:1805.02867 (online softmax).
// Checked   against attention() in src/model/reference/ops.ts by test/gpu/attention.test.ts. Printed by scripts/gen-attention.mjs: edit scripts/lib/attentionTile.mjs.

struct Params {
  N: u32,      // query rows
  H: u32,      // query heads
  K: u32,      // key/value heads
  D: u32,      // 24
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = 64u; // threads in a workgroup
const D4 = 6u; // vec4s in a head
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
  let tile = t / params.H * 2u;
  if (tile >= params.N) { return; }
  let kHead = head / (params.H / params.K) * D4;
  let vHead = params.K * D4;

  var first = tile;
  while (first < min(tile + 2u, params.N)) {
    let span = ranges[first];
    var end = first + 1u;
    // Rows that share prefix and own start form a run; a tile is one run unless it crosses two sequences.
    while (end < min(tile + 2u, params.N) && all(ranges[end].xyz == span.xyz)) { end++; }
    let row0 = min(first + 0u, end - 1u);
    let end0 = span.w;
    let at0 = (row0 * params.H + head) * D4;
    let q0_0 = vec4f(q[at0 + 0u]); let q0_1 = vec4f(q[at0 + 1u]); let q0_2 = vec4f(q[at0 + 2u]); let q0_3 = vec4f(q[at0 + 3u]); let q0_4 = vec4f(q[at0 + 4u]); let q0_5 = vec4f(q[at0 + 5u]);
    var o0_0 = vec4f(); var o0_1 = vec4f(); var o0_2 = vec4f(); var o0_3 = vec4f(); var o0_4 = vec4f(); var o0_5 = vec4f();
    var top0 = -3.0e38; var sum0 = 0.0;
    let row1 = min(first + 1u, end - 1u);
    let end1 = ranges[row1].w;
    let at1 = (row1 * params.H + head) * D4;
    let q1_0 = vec4f(q[at1 + 0u]); let q1_1 = vec4f(q[at1 + 1u]); let q1_2 = vec4f(q[at1 + 2u]); let q1_3 = vec4f(q[at1 + 3u]); let q1_4 = vec4f(q[at1 + 4u]); let q1_5 = vec4f(q[at1 + 5u]);
    var o1_0 = vec4f(); var o1_1 = vec4f(); var o1_2 = vec4f(); var o1_3 = vec4f(); var o1_4 = vec4f(); var o1_5 = vec4f();
    var top1 = -3.0e38; var sum1 = 0.0;

    for (var part = 0u; part < 2u; part++) {
      let own = part == 1u;
      let stop = select(span.y, max(end0, end1), own);
      for (var j = select(span.x, span.z, own); j < stop; j++) {
        let key = j * 2u * vHead + kHead;
        let k_0 = vec4f(kv[key + 0u]); let k_1 = vec4f(kv[key + 1u]); let k_2 = vec4f(kv[key + 2u]); let k_3 = vec4f(kv[key + 3u]); let k_4 = vec4f(kv[key + 4u]); let k_5 = vec4f(kv[key + 5u]);
        let v_0 = vec4f(kv[key + vHead + 0u]); let v_1 = vec4f(kv[key + vHead + 1u]); let v_2 = vec4f(kv[key + vHead + 2u]); let v_3 = vec4f(kv[key + vHead + 3u]); let v_4 = vec4f(kv[key + vHead + 4u]); let v_5 = vec4f(kv[key + vHead + 5u]);
        {
          let score = fold(q0_0 * k_0 + q0_1 * k_1 + q0_2 * k_2 + q0_3 * k_3 + q0_4 * k_4 + q0_5 * k_5) * params.scale;
          let sees = !own | (j < end0);
          let newTop = select(top0, max(top0, score), sees);
          let keep = exp(top0 - newTop);
          let p = select(0.0, exp(score - newTop), sees);
          top0 = newTop; sum0 = sum0 * keep + p;
          o0_0 = o0_0 * keep + p * v_0; o0_1 = o0_1 * keep + p * v_1; o0_2 = o0_2 * keep + p * v_2; o0_3 = o0_3 * keep + p * v_3; o0_4 = o0_4 * keep + p * v_4; o0_5 = o0_5 * keep + p * v_5;
        }
        {
          let score = fold(q1_0 * k_0 + q1_1 * k_1 + q1_2 * k_2 + q1_3 * k_3 + q1_4 * k_4 + q1_5 * k_5) * params.scale;
          let sees = !own | (j < end1);
          let newTop = select(top1, max(top1, score), sees);
          let keep = exp(top1 - newTop);
          let p = select(0.0, exp(score - newTop), sees);
          top1 = newTop; sum1 = sum1 * keep + p;
          o1_0 = o1_0 * keep + p * v_0; o1_1 = o1_1 * keep + p * v_1; o1_2 = o1_2 * keep + p * v_2; o1_3 = o1_3 * keep + p * v_3; o1_4 = o1_4 * keep + p * v_4; o1_5 = o1_5 * keep + p * v_5;
        }
      }
    }

    {
      out[at0 + 0u] = Act(o0_0 / sum0); out[at0 + 1u] = Act(o0_1 / sum0); out[at0 + 2u] = Act(o0_2 / sum0); out[at0 + 3u] = Act(o0_3 / sum0); out[at0 + 4u] = Act(o0_4 / sum0); out[at0 + 5u] = Act(o0_5 / sum0);
      lse[row0 * params.H + head] = top0 + log(sum0);
    }
    if (first + 1u < end) {
      out[at1 + 0u] = Act(o1_0 / sum1); out[at1 + 1u] = Act(o1_1 / sum1); out[at1 + 2u] = Act(o1_2 / sum1); out[at1 + 3u] = Act(o1_3 / sum1); out[at1 + 4u] = Act(o1_4 / sum1); out[at1 + 5u] = Act(o1_5 / sum1);
      lse[row1 * params.H + head] = top1 + log(sum1);
    }
    first = end;
  }
}
