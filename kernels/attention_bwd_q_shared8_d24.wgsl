enable subgroups;
diagnostic(off, subgroup_uniformity); // a workgroup is one subgroup, and all its lanes take every turn of every loop

// attention_bwd_q_d24.wgsl with keys loaded together; same inputs, same outputs.
//
// Grid      a workgroup is one subgroup of 8 lanes: 16 neighbouring rows of one head, 2 a lane. Each lane loads a part of
//           a key, and hands it to the others.
// Numerics  as without sharing, the same bits; to a row that does not see a key, it adds 0 (so it must be finite).
// Checked   against src/model/reference/ops.ts by test/gpu/attention_bwd_q_shared8_d24.test.ts. Printed by scripts/gen-attention.mjs: edit
//           scripts/lib/attentionShared.mjs.

struct Params {
  N: u32,      // rows
  H: u32,      // query heads
  K: u32,      // key/value heads
  D: u32,      // 24
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = 8u; // one subgroup
const D4 = 6u; // vec4s in a head
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
  let spanStart = at / params.H * 16u;
  if (spanStart >= params.N) { return; }
  let spanEnd = min(spanStart + 16u, params.N);
  let tile = spanStart + lane * 2u;
  let kHead = head / (params.H / params.K) * D4;
  let vHead = params.K * D4;
  let row0 = min(tile + 0u, params.N - 1u); let mine0 = ranges[row0];
  let at0 = (row0 * params.H + head) * D4;
  let q0_0 = vec4f(q[at0 + 0u]); let q0_1 = vec4f(q[at0 + 1u]); let q0_2 = vec4f(q[at0 + 2u]); let q0_3 = vec4f(q[at0 + 3u]); let q0_4 = vec4f(q[at0 + 4u]); let q0_5 = vec4f(q[at0 + 5u]);
  let g0_0 = dout[at0 + 0u]; let g0_1 = dout[at0 + 1u]; let g0_2 = dout[at0 + 2u]; let g0_3 = dout[at0 + 3u]; let g0_4 = dout[at0 + 4u]; let g0_5 = dout[at0 + 5u];
  let delta0 = fold(g0_0 * vec4f(out[at0 + 0u]) + g0_1 * vec4f(out[at0 + 1u]) + g0_2 * vec4f(out[at0 + 2u]) + g0_3 * vec4f(out[at0 + 3u]) + g0_4 * vec4f(out[at0 + 4u]) + g0_5 * vec4f(out[at0 + 5u]));
  let lse0 = lse[row0 * params.H + head];
  let row1 = min(tile + 1u, params.N - 1u); let mine1 = ranges[row1];
  let at1 = (row1 * params.H + head) * D4;
  let q1_0 = vec4f(q[at1 + 0u]); let q1_1 = vec4f(q[at1 + 1u]); let q1_2 = vec4f(q[at1 + 2u]); let q1_3 = vec4f(q[at1 + 3u]); let q1_4 = vec4f(q[at1 + 4u]); let q1_5 = vec4f(q[at1 + 5u]);
  let g1_0 = dout[at1 + 0u]; let g1_1 = dout[at1 + 1u]; let g1_2 = dout[at1 + 2u]; let g1_3 = dout[at1 + 3u]; let g1_4 = dout[at1 + 4u]; let g1_5 = dout[at1 + 5u];
  let delta1 = fold(g1_0 * vec4f(out[at1 + 0u]) + g1_1 * vec4f(out[at1 + 1u]) + g1_2 * vec4f(out[at1 + 2u]) + g1_3 * vec4f(out[at1 + 3u]) + g1_4 * vec4f(out[at1 + 4u]) + g1_5 * vec4f(out[at1 + 5u]));
  let lse1 = lse[row1 * params.H + head];

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
    var d0_0 = vec4f(); var d0_1 = vec4f(); var d0_2 = vec4f(); var d0_3 = vec4f(); var d0_4 = vec4f(); var d0_5 = vec4f();
    var d1_0 = vec4f(); var d1_1 = vec4f(); var d1_2 = vec4f(); var d1_3 = vec4f(); var d1_4 = vec4f(); var d1_5 = vec4f();
    for (var part = 0u; part < 2u; part++) {
      let own = part == 1u;
      let stop = select(span.y, ownStop, own);
      let until0 = select(0u, select(0xffffffffu, mine0.w, own), in0);
      let until1 = select(0u, select(0xffffffffu, mine1.w, own), in1);
      for (var j = select(span.x, span.z, own); j < stop; j++) {
        let key = j * 2u * vHead + kHead;
        let part0 = vec4f(kv[key + select(lane + 0u, lane + 0u + vHead - D4, lane + 0u >= D4)]); let part1 = vec4f(kv[key + select(min(lane + 8u, 11u), min(lane + 8u, 11u) + vHead - D4, min(lane + 8u, 11u) >= D4)]);
        let k_0 = subgroupBroadcast(part0, 0u); let k_1 = subgroupBroadcast(part0, 1u); let k_2 = subgroupBroadcast(part0, 2u); let k_3 = subgroupBroadcast(part0, 3u); let k_4 = subgroupBroadcast(part0, 4u); let k_5 = subgroupBroadcast(part0, 5u); let v_0 = subgroupBroadcast(part0, 6u); let v_1 = subgroupBroadcast(part0, 7u); let v_2 = subgroupBroadcast(part1, 0u); let v_3 = subgroupBroadcast(part1, 1u); let v_4 = subgroupBroadcast(part1, 2u); let v_5 = subgroupBroadcast(part1, 3u);
        {
          let p = select(0.0, exp(fold(q0_0 * k_0 + q0_1 * k_1 + q0_2 * k_2 + q0_3 * k_3 + q0_4 * k_4 + q0_5 * k_5) * params.scale - lse0), j < until0);
          let ds = p * (fold(g0_0 * v_0 + g0_1 * v_1 + g0_2 * v_2 + g0_3 * v_3 + g0_4 * v_4 + g0_5 * v_5) - delta0) * params.scale;
          d0_0 += ds * k_0; d0_1 += ds * k_1; d0_2 += ds * k_2; d0_3 += ds * k_3; d0_4 += ds * k_4; d0_5 += ds * k_5;
        }
        {
          let p = select(0.0, exp(fold(q1_0 * k_0 + q1_1 * k_1 + q1_2 * k_2 + q1_3 * k_3 + q1_4 * k_4 + q1_5 * k_5) * params.scale - lse1), j < until1);
          let ds = p * (fold(g1_0 * v_0 + g1_1 * v_1 + g1_2 * v_2 + g1_3 * v_3 + g1_4 * v_4 + g1_5 * v_5) - delta1) * params.scale;
          d1_0 += ds * k_0; d1_1 += ds * k_1; d1_2 += ds * k_2; d1_3 += ds * k_3; d1_4 += ds * k_4; d1_5 += ds * k_5;
        }
      }
    }
    if (in0) {
      dq[at0 + 0u] = d0_0; dq[at0 + 1u] = d0_1; dq[at0 + 2u] = d0_2; dq[at0 + 3u] = d0_3; dq[at0 + 4u] = d0_4; dq[at0 + 5u] = d0_5;
      delta[row0 * params.H + head] = delta0;
    }
    if (in1) {
      dq[at1 + 0u] = d1_0; dq[at1 + 1u] = d1_1; dq[at1 + 2u] = d1_2; dq[at1 + 3u] = d1_3; dq[at1 + 4u] = d1_4; dq[at1 + 5u] = d1_5;
      delta[row1 * params.H + head] = delta1;
    }
    first = end;
  }
}
