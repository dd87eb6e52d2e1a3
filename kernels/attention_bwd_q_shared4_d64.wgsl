enable subgroups;
diagnostic(off, subgroup_uniformity); // a workgroup is one subgroup, and all its lanes take every turn of every loop

// attention_bwd_q_d64.wgsl with keys loaded together; same inputs, same outputs.
//
// Grid      a workgroup is one subgroup of 4 lanes: 4 neighbouring rows of one head, 1 a lane. Each lane loads a part of
//           a key, and hands it to the others.
// Numerics  as without sharing, the same bits; to a row that does not see a key, it adds 0 (so it must be finite).
// Checked   against src/model/reference/ops.ts by test/gpu/attention_bwd_q_shared4_d64.test.ts. Printed by scripts/gen-attention.mjs: edit
//           scripts/lib/attentionShared.mjs.

struct Params {
  N: u32,      // rows
  H: u32,      // query heads
  K: u32,      // key/value heads
  D: u32,      // 64
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = 4u; // one subgroup
const D4 = 16u; // vec4s in a head
alias Act = vec4f; // of activations: vec4h where they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> q: array<Act>;
@group(0) @binding(1) var<storage, read> kv: array<Act>;
@group(0) @binding(2) var<storage, read> out: array<Act>;
@group(0) @binding(3) var<storage, read> dout: array<vec4f>;
@group(0) @binding(4) var<storage, read> lse: array<f32>;
@group(0) @binding(5) var<storage, read> ranges: array<vec4u>;
@group(0) @binding(6) var<storage, read_write> dq: array<vec4f>;
@group(0) @binding(7) var<storage, read_write> delta: array<f32>;
@group(0) @binding(8) var<uniform> params: Params;

fn fold(x: vec4f) -> f32 { return (x.x + x.y) + (x.z + x.w); }

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let at = wg.y * grid.x + wg.x;
  let head = at % params.H;
  let spanStart = at / params.H * 4u;
  if (spanStart >= params.N) { return; }
  let spanEnd = min(spanStart + 4u, params.N);
  let tile = spanStart + lane * 1u;
  let kHead = head / (params.H / params.K) * D4;
  let vHead = params.K * D4;
  let row0 = min(tile + 0u, params.N - 1u); let mine0 = ranges[row0];
  let at0 = (row0 * params.H + head) * D4;
  let q0_0 = vec4f(q[at0 + 0u]); let q0_1 = vec4f(q[at0 + 1u]); let q0_2 = vec4f(q[at0 + 2u]); let q0_3 = vec4f(q[at0 + 3u]); let q0_4 = vec4f(q[at0 + 4u]); let q0_5 = vec4f(q[at0 + 5u]); let q0_6 = vec4f(q[at0 + 6u]); let q0_7 = vec4f(q[at0 + 7u]); let q0_8 = vec4f(q[at0 + 8u]); let q0_9 = vec4f(q[at0 + 9u]); let q0_10 = vec4f(q[at0 + 10u]); let q0_11 = vec4f(q[at0 + 11u]); let q0_12 = vec4f(q[at0 + 12u]); let q0_13 = vec4f(q[at0 + 13u]); let q0_14 = vec4f(q[at0 + 14u]); let q0_15 = vec4f(q[at0 + 15u]);
  let g0_0 = dout[at0 + 0u]; let g0_1 = dout[at0 + 1u]; let g0_2 = dout[at0 + 2u]; let g0_3 = dout[at0 + 3u]; let g0_4 = dout[at0 + 4u]; let g0_5 = dout[at0 + 5u]; let g0_6 = dout[at0 + 6u]; let g0_7 = dout[at0 + 7u]; let g0_8 = dout[at0 + 8u]; let g0_9 = dout[at0 + 9u]; let g0_10 = dout[at0 + 10u]; let g0_11 = dout[at0 + 11u]; let g0_12 = dout[at0 + 12u]; let g0_13 = dout[at0 + 13u]; let g0_14 = dout[at0 + 14u]; let g0_15 = dout[at0 + 15u];
  let delta0 = fold(g0_0 * vec4f(out[at0 + 0u]) + g0_1 * vec4f(out[at0 + 1u]) + g0_2 * vec4f(out[at0 + 2u]) + g0_3 * vec4f(out[at0 + 3u]) + g0_4 * vec4f(out[at0 + 4u]) + g0_5 * vec4f(out[at0 + 5u]) + g0_6 * vec4f(out[at0 + 6u]) + g0_7 * vec4f(out[at0 + 7u]) + g0_8 * vec4f(out[at0 + 8u]) + g0_9 * vec4f(out[at0 + 9u]) + g0_10 * vec4f(out[at0 + 10u]) + g0_11 * vec4f(out[at0 + 11u]) + g0_12 * vec4f(out[at0 + 12u]) + g0_13 * vec4f(out[at0 + 13u]) + g0_14 * vec4f(out[at0 + 14u]) + g0_15 * vec4f(out[at0 + 15u]));
  let lse0 = lse[row0 * params.H + head];

  var first = spanStart;
  while (first < spanEnd) {
    let span = ranges[first];
    var end = spanEnd; // where the run ends
    if (tile + 0u > first && tile + 0u < spanEnd && any(mine0.xyz != span.xyz)) { end = min(end, tile + 0u); }
    end = subgroupMin(end);
    let in0 = tile + 0u >= first && tile + 0u < end;
    let ownStop = subgroupMax(select(0u, mine0.w, in0));
    var d0_0 = vec4f(); var d0_1 = vec4f(); var d0_2 = vec4f(); var d0_3 = vec4f(); var d0_4 = vec4f(); var d0_5 = vec4f(); var d0_6 = vec4f(); var d0_7 = vec4f(); var d0_8 = vec4f(); var d0_9 = vec4f(); var d0_10 = vec4f(); var d0_11 = vec4f(); var d0_12 = vec4f(); var d0_13 = vec4f(); var d0_14 = vec4f(); var d0_15 = vec4f();
    for (var part = 0u; part < 2u; part++) {
      let own = part == 1u;
      let stop = select(span.y, ownStop, own);
      let until0 = select(0u, select(0xffffffffu, mine0.w, own), in0);
      for (var j = select(span.x, span.z, own); j < stop; j++) {
        let key = j * 2u * vHead + kHead;
        let part0 = vec4f(kv[key + select(lane + 0u, lane + 0u + vHead - D4, lane + 0u >= D4)]); let part1 = vec4f(kv[key + select(lane + 4u, lane + 4u + vHead - D4, lane + 4u >= D4)]); let part2 = vec4f(kv[key + select(lane + 8u, lane + 8u + vHead - D4, lane + 8u >= D4)]); let part3 = vec4f(kv[key + select(lane + 12u, lane + 12u + vHead - D4, lane + 12u >= D4)]); let part4 = vec4f(kv[key + select(lane + 16u, lane + 16u + vHead - D4, lane + 16u >= D4)]); let part5 = vec4f(kv[key + select(lane + 20u, lane + 20u + vHead - D4, lane + 20u >= D4)]); let part6 = vec4f(kv[key + select(lane + 24u, lane + 24u + vHead - D4, lane + 24u >= D4)]); let part7 = vec4f(kv[key + select(lane + 28u, lane + 28u + vHead - D4, lane + 28u >= D4)]);
        let k_0 = subgroupBroadcast(part0, 0u); let k_1 = subgroupBroadcast(part0, 1u); let k_2 = subgroupBroadcast(part0, 2u); let k_3 = subgroupBroadcast(part0, 3u); let k_4 = subgroupBroadcast(part1, 0u); let k_5 = subgroupBroadcast(part1, 1u); let k_6 = subgroupBroadcast(part1, 2u); let k_7 = subgroupBroadcast(part1, 3u); let k_8 = subgroupBroadcast(part2, 0u); let k_9 = subgroupBroadcast(part2, 1u); let k_10 = subgroupBroadcast(part2, 2u); let k_11 = subgroupBroadcast(part2, 3u); let k_12 = subgroupBroadcast(part3, 0u); let k_13 = subgroupBroadcast(part3, 1u); let k_14 = subgroupBroadcast(part3, 2u); let k_15 = subgroupBroadcast(part3, 3u); let v_0 = subgroupBroadcast(part4, 0u); let v_1 = subgroupBroadcast(part4, 1u); let v_2 = subgroupBroadcast(part4, 2u); let v_3 = subgroupBroadcast(part4, 3u); let v_4 = subgroupBroadcast(part5, 0u); let v_5 = subgroupBroadcast(part5, 1u); let v_6 = subgroupBroadcast(part5, 2u); let v_7 = subgroupBroadcast(part5, 3u); let v_8 = subgroupBroadcast(part6, 0u); let v_9 = subgroupBroadcast(part6, 1u); let v_10 = subgroupBroadcast(part6, 2u); let v_11 = subgroupBroadcast(part6, 3u); let v_12 = subgroupBroadcast(part7, 0u); let v_13 = subgroupBroadcast(part7, 1u); let v_14 = subgroupBroadcast(part7, 2u); let v_15 = subgroupBroadcast(part7, 3u);
        {
          let p = select(0.0, exp(fold(q0_0 * k_0 + q0_1 * k_1 + q0_2 * k_2 + q0_3 * k_3 + q0_4 * k_4 + q0_5 * k_5 + q0_6 * k_6 + q0_7 * k_7 + q0_8 * k_8 + q0_9 * k_9 + q0_10 * k_10 + q0_11 * k_11 + q0_12 * k_12 + q0_13 * k_13 + q0_14 * k_14 + q0_15 * k_15) * params.scale - lse0), j < until0);
          let ds = p * (fold(g0_0 * v_0 + g0_1 * v_1 + g0_2 * v_2 + g0_3 * v_3 + g0_4 * v_4 + g0_5 * v_5 + g0_6 * v_6 + g0_7 * v_7 + g0_8 * v_8 + g0_9 * v_9 + g0_10 * v_10 + g0_11 * v_11 + g0_12 * v_12 + g0_13 * v_13 + g0_14 * v_14 + g0_15 * v_15) - delta0) * params.scale;
          d0_0 += ds * k_0; d0_1 += ds * k_1; d0_2 += ds * k_2; d0_3 += ds * k_3; d0_4 += ds * k_4; d0_5 += ds * k_5; d0_6 += ds * k_6; d0_7 += ds * k_7; d0_8 += ds * k_8; d0_9 += ds * k_9; d0_10 += ds * k_10; d0_11 += ds * k_11; d0_12 += ds * k_12; d0_13 += ds * k_13; d0_14 += ds * k_14; d0_15 += ds * k_15;
        }
      }
    }
    if (in0) {
      dq[at0 + 0u] = d0_0; dq[at0 + 1u] = d0_1; dq[at0 + 2u] = d0_2; dq[at0 + 3u] = d0_3; dq[at0 + 4u] = d0_4; dq[at0 + 5u] = d0_5; dq[at0 + 6u] = d0_6; dq[at0 + 7u] = d0_7; dq[at0 + 8u] = d0_8; dq[at0 + 9u] = d0_9; dq[at0 + 10u] = d0_10; dq[at0 + 11u] = d0_11; dq[at0 + 12u] = d0_12; dq[at0 + 13u] = d0_13; dq[at0 + 14u] = d0_14; dq[at0 + 15u] = d0_15;
      delta[row0 * params.H + head] = delta0;
    }
    first = end;
  }
}
