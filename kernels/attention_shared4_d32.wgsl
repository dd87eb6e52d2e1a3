enable subgroups;
diagnostic(off, subgroup_uniformity); // a workgroup is one subgroup, and all its lanes take every turn of every loop

// attention_d32.wgsl with keys loaded together; same inputs, same outputs.
//
// Grid      a workgroup is one subgroup of 4 lanes: 8 neighbouring rows of one head, 2 a lane. Each lane loads a part of
//           a key, and hands it to the others.
// Numerics  as without sharing, the same bits; to a row that does not see a key, it adds 0 (so it must be finite).
// Checked   against src/model/reference/ops.ts by test/gpu/attention_shared4_d32.test.ts. Printed by scripts/gen-attention.mjs: edit
//           scripts/lib/attentionShared.mjs.

struct Params {
  N: u32,      // rows
  H: u32,      // query heads
  K: u32,      // key/value heads
  D: u32,      // 32
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = 4u; // one subgroup
const D4 = 8u; // vec4s in a head
alias Act = vec4f; // of activations: vec4h where they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> q: array<Act>;
@group(0) @binding(1) var<storage, read> kv: array<Act>;
@group(0) @binding(2) var<storage, read> ranges: array<vec4u>;
@group(0) @binding(3) var<storage, read_write> out: array<Act>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

fn fold(x: vec4f) -> f32 { return (x.x + x.y) + (x.z + x.w); }

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let at = wg.y * grid.x + wg.x;
  let head = at % params.H;
  let spanStart = at / params.H * 8u;
  if (spanStart >= params.N) { return; }
  let spanEnd = min(spanStart + 8u, params.N);
  let tile = spanStart + lane * 2u;
  let kHead = head / (params.H / params.K) * D4;
  let vHead = params.K * D4;
  let row0 = min(tile + 0u, params.N - 1u); let mine0 = ranges[row0];
  let at0 = (row0 * params.H + head) * D4;
  let q0_0 = vec4f(q[at0 + 0u]); let q0_1 = vec4f(q[at0 + 1u]); let q0_2 = vec4f(q[at0 + 2u]); let q0_3 = vec4f(q[at0 + 3u]); let q0_4 = vec4f(q[at0 + 4u]); let q0_5 = vec4f(q[at0 + 5u]); let q0_6 = vec4f(q[at0 + 6u]); let q0_7 = vec4f(q[at0 + 7u]);
  let row1 = min(tile + 1u, params.N - 1u); let mine1 = ranges[row1];
  let at1 = (row1 * params.H + head) * D4;
  let q1_0 = vec4f(q[at1 + 0u]); let q1_1 = vec4f(q[at1 + 1u]); let q1_2 = vec4f(q[at1 + 2u]); let q1_3 = vec4f(q[at1 + 3u]); let q1_4 = vec4f(q[at1 + 4u]); let q1_5 = vec4f(q[at1 + 5u]); let q1_6 = vec4f(q[at1 + 6u]); let q1_7 = vec4f(q[at1 + 7u]);

  var first = spanStart;
  while (first < spanEnd) {
    let span = ranges[first];
    var end = spanEnd; // where the run ends
    if (tile + 0u > first && tile + 0u < spanEnd && any(mine0.xyz != span.xyz)) { end = min(end, tile + 0u); }
    if (tile + 1u > first && tile + 1u < spanEnd && any(mine1.xyz != span.xyz)) { end = min(end, tile + 1u); }
    end = subgroupMin(end);
    let in0 = tile + 0u >= first && tile + 0u < end;
    let in1 = tile + 1u >= first && tile + 1u < end;
    let ownStop = subgroupMax(max(select(0u, mine0.w, in0), select(0u, mine1.w, in1)));
    var o0_0 = vec4f(); var o0_1 = vec4f(); var o0_2 = vec4f(); var o0_3 = vec4f(); var o0_4 = vec4f(); var o0_5 = vec4f(); var o0_6 = vec4f(); var o0_7 = vec4f(); var top0 = -3.0e38; var sum0 = 0.0;
    var o1_0 = vec4f(); var o1_1 = vec4f(); var o1_2 = vec4f(); var o1_3 = vec4f(); var o1_4 = vec4f(); var o1_5 = vec4f(); var o1_6 = vec4f(); var o1_7 = vec4f(); var top1 = -3.0e38; var sum1 = 0.0;
    for (var part = 0u; part < 2u; part++) {
      let own = part == 1u;
      let stop = select(span.y, ownStop, own);
      let until0 = select(0u, select(0xffffffffu, mine0.w, own), in0);
      let until1 = select(0u, select(0xffffffffu, mine1.w, own), in1);
      for (var j = select(span.x, span.z, own); j < stop; j++) {
        let key = j * 2u * vHead + kHead;
        let part0 = vec4f(kv[key + select(lane + 0u, lane + 0u + vHead - D4, lane + 0u >= D4)]); let part1 = vec4f(kv[key + select(lane + 4u, lane + 4u + vHead - D4, lane + 4u >= D4)]); let part2 = vec4f(kv[key + select(lane + 8u, lane + 8u + vHead - D4, lane + 8u >= D4)]); let part3 = vec4f(kv[key + select(lane + 12u, lane + 12u + vHead - D4, lane + 12u >= D4)]);
        let k_0 = subgroupBroadcast(part0, 0u); let k_1 = subgroupBroadcast(part0, 1u); let k_2 = subgroupBroadcast(part0, 2u); let k_3 = subgroupBroadcast(part0, 3u); let k_4 = subgroupBroadcast(part1, 0u); let k_5 = subgroupBroadcast(part1, 1u); let k_6 = subgroupBroadcast(part1, 2u); let k_7 = subgroupBroadcast(part1, 3u); let v_0 = subgroupBroadcast(part2, 0u); let v_1 = subgroupBroadcast(part2, 1u); let v_2 = subgroupBroadcast(part2, 2u); let v_3 = subgroupBroadcast(part2, 3u); let v_4 = subgroupBroadcast(part3, 0u); let v_5 = subgroupBroadcast(part3, 1u); let v_6 = subgroupBroadcast(part3, 2u); let v_7 = subgroupBroadcast(part3, 3u);
        {
          let score = fold(q0_0 * k_0 + q0_1 * k_1 + q0_2 * k_2 + q0_3 * k_3 + q0_4 * k_4 + q0_5 * k_5 + q0_6 * k_6 + q0_7 * k_7) * params.scale;
          let sees = j < until0;
          let newTop = select(top0, max(top0, score), sees);
          let keep = exp(top0 - newTop);
          let p = select(0.0, exp(score - newTop), sees);
          top0 = newTop; sum0 = sum0 * keep + p;
          o0_0 = o0_0 * keep + p * v_0; o0_1 = o0_1 * keep + p * v_1; o0_2 = o0_2 * keep + p * v_2; o0_3 = o0_3 * keep + p * v_3; o0_4 = o0_4 * keep + p * v_4; o0_5 = o0_5 * keep + p * v_5; o0_6 = o0_6 * keep + p * v_6; o0_7 = o0_7 * keep + p * v_7;
        }
        {
          let score = fold(q1_0 * k_0 + q1_1 * k_1 + q1_2 * k_2 + q1_3 * k_3 + q1_4 * k_4 + q1_5 * k_5 + q1_6 * k_6 + q1_7 * k_7) * params.scale;
          let sees = j < until1;
          let newTop = select(top1, max(top1, score), sees);
          let keep = exp(top1 - newTop);
          let p = select(0.0, exp(score - newTop), sees);
          top1 = newTop; sum1 = sum1 * keep + p;
          o1_0 = o1_0 * keep + p * v_0; o1_1 = o1_1 * keep + p * v_1; o1_2 = o1_2 * keep + p * v_2; o1_3 = o1_3 * keep + p * v_3; o1_4 = o1_4 * keep + p * v_4; o1_5 = o1_5 * keep + p * v_5; o1_6 = o1_6 * keep + p * v_6; o1_7 = o1_7 * keep + p * v_7;
        }
      }
    }
    if (in0) {
      out[at0 + 0u] = Act(o0_0 / sum0); out[at0 + 1u] = Act(o0_1 / sum0); out[at0 + 2u] = Act(o0_2 / sum0); out[at0 + 3u] = Act(o0_3 / sum0); out[at0 + 4u] = Act(o0_4 / sum0); out[at0 + 5u] = Act(o0_5 / sum0); out[at0 + 6u] = Act(o0_6 / sum0); out[at0 + 7u] = Act(o0_7 / sum0);
      lse[row0 * params.H + head] = top0 + log(sum0);
    }
    if (in1) {
      out[at1 + 0u] = Act(o1_0 / sum1); out[at1 + 1u] = Act(o1_1 / sum1); out[at1 + 2u] = Act(o1_2 / sum1); out[at1 + 3u] = Act(o1_3 / sum1); out[at1 + 4u] = Act(o1_4 / sum1); out[at1 + 5u] = Act(o1_5 / sum1); out[at1 + 6u] = Act(o1_6 / sum1); out[at1 + 7u] = Act(o1_7 / sum1);
      lse[row1 * params.H + head] = top1 + log(sum1);
    }
    first = end;
  }
}
