enable subgroups;
diagnostic(off, subgroup_uniformity); // a workgroup is one subgroup, and all its lanes take every turn of every loop

// attention_bwd_kv_d64.wgsl with queries loaded together; same inputs, same outputs.
//
// Grid      a workgroup is one subgroup of 8 lanes: 8 neighbouring rows of one head, 1 a lane. Each lane loads a part of
//           a query and its gradient, and hands it to the others.
// Numerics  as without sharing, the same bits; to a row that does not see a key, it adds 0 (so it must be finite).
// Checked   against src/model/reference/ops.ts by test/gpu/attention_bwd_kv_shared8_d64.test.ts. Printed by scripts/gen-attention.mjs: edit
//           scripts/lib/attentionShared.mjs.

struct Params {
  N: u32,      // rows
  H: u32,      // query heads
  K: u32,      // key/value heads
  D: u32,      // 64
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = 8u; // one subgroup
const D4 = 16u; // vec4s in a head
alias Act = vec4f; // of activations: vec4h where they are halves (src/gpu/halves.ts)

@group(0) @binding(0) var<storage, read> q: array<Act>;
@group(0) @binding(1) var<storage, read> kv: array<Act>;
@group(0) @binding(2) var<storage, read> dout: array<vec4f>;
@group(0) @binding(3) var<storage, read> lse: array<f32>;
@group(0) @binding(4) var<storage, read> delta: array<f32>;
@group(0) @binding(5) var<storage, read> queryEnd: array<u32>;
@group(0) @binding(6) var<storage, read_write> dkv: array<vec4f>;
@group(0) @binding(7) var<uniform> params: Params;

fn fold(x: vec4f) -> f32 { return (x.x + x.y) + (x.z + x.w); }

@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wg: vec3u,
  @builtin(num_workgroups) grid: vec3u,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let at = wg.y * grid.x + wg.x;
  let head = at % params.K;
  let spanStart = at / params.K * 8u;
  if (spanStart >= params.N) { return; }
  let spanEnd = min(spanStart + 8u, params.N);
  let tile = spanStart + lane * 1u;
  let share = params.H / params.K; // query heads that read this key head
  let vHead = params.K * D4;
  let j0 = min(tile + 0u, params.N - 1u); let end0 = queryEnd[j0];
  let key0 = j0 * 2u * vHead + head * D4;
  let k0_0 = vec4f(kv[key0 + 0u]); let k0_1 = vec4f(kv[key0 + 1u]); let k0_2 = vec4f(kv[key0 + 2u]); let k0_3 = vec4f(kv[key0 + 3u]); let k0_4 = vec4f(kv[key0 + 4u]); let k0_5 = vec4f(kv[key0 + 5u]); let k0_6 = vec4f(kv[key0 + 6u]); let k0_7 = vec4f(kv[key0 + 7u]); let k0_8 = vec4f(kv[key0 + 8u]); let k0_9 = vec4f(kv[key0 + 9u]); let k0_10 = vec4f(kv[key0 + 10u]); let k0_11 = vec4f(kv[key0 + 11u]); let k0_12 = vec4f(kv[key0 + 12u]); let k0_13 = vec4f(kv[key0 + 13u]); let k0_14 = vec4f(kv[key0 + 14u]); let k0_15 = vec4f(kv[key0 + 15u]);
  let v0_0 = vec4f(kv[key0 + vHead + 0u]); let v0_1 = vec4f(kv[key0 + vHead + 1u]); let v0_2 = vec4f(kv[key0 + vHead + 2u]); let v0_3 = vec4f(kv[key0 + vHead + 3u]); let v0_4 = vec4f(kv[key0 + vHead + 4u]); let v0_5 = vec4f(kv[key0 + vHead + 5u]); let v0_6 = vec4f(kv[key0 + vHead + 6u]); let v0_7 = vec4f(kv[key0 + vHead + 7u]); let v0_8 = vec4f(kv[key0 + vHead + 8u]); let v0_9 = vec4f(kv[key0 + vHead + 9u]); let v0_10 = vec4f(kv[key0 + vHead + 10u]); let v0_11 = vec4f(kv[key0 + vHead + 11u]); let v0_12 = vec4f(kv[key0 + vHead + 12u]); let v0_13 = vec4f(kv[key0 + vHead + 13u]); let v0_14 = vec4f(kv[key0 + vHead + 14u]); let v0_15 = vec4f(kv[key0 + vHead + 15u]);
  var dk0_0 = vec4f(); var dv0_0 = vec4f(); var dk0_1 = vec4f(); var dv0_1 = vec4f(); var dk0_2 = vec4f(); var dv0_2 = vec4f(); var dk0_3 = vec4f(); var dv0_3 = vec4f(); var dk0_4 = vec4f(); var dv0_4 = vec4f(); var dk0_5 = vec4f(); var dv0_5 = vec4f(); var dk0_6 = vec4f(); var dv0_6 = vec4f(); var dk0_7 = vec4f(); var dv0_7 = vec4f(); var dk0_8 = vec4f(); var dv0_8 = vec4f(); var dk0_9 = vec4f(); var dv0_9 = vec4f(); var dk0_10 = vec4f(); var dv0_10 = vec4f(); var dk0_11 = vec4f(); var dv0_11 = vec4f(); var dk0_12 = vec4f(); var dv0_12 = vec4f(); var dk0_13 = vec4f(); var dv0_13 = vec4f(); var dk0_14 = vec4f(); var dv0_14 = vec4f(); var dk0_15 = vec4f(); var dv0_15 = vec4f();
  let last = subgroupMax(end0);

  // One loop over (row, query head): two nested loops would carry every register through both.
  var row = spanStart;
  var h = head * share;
  while (row < last) {
    let query = (row * params.H + h) * D4;
    let lseRow = lse[row * params.H + h];
    let deltaRow = delta[row * params.H + h];
    let qPart0 = vec4f(q[query + lane + 0u]); let qPart1 = vec4f(q[query + lane + 8u]);
    let q_0 = subgroupBroadcast(qPart0, 0u); let q_1 = subgroupBroadcast(qPart0, 1u); let q_2 = subgroupBroadcast(qPart0, 2u); let q_3 = subgroupBroadcast(qPart0, 3u); let q_4 = subgroupBroadcast(qPart0, 4u); let q_5 = subgroupBroadcast(qPart0, 5u); let q_6 = subgroupBroadcast(qPart0, 6u); let q_7 = subgroupBroadcast(qPart0, 7u); let q_8 = subgroupBroadcast(qPart1, 0u); let q_9 = subgroupBroadcast(qPart1, 1u); let q_10 = subgroupBroadcast(qPart1, 2u); let q_11 = subgroupBroadcast(qPart1, 3u); let q_12 = subgroupBroadcast(qPart1, 4u); let q_13 = subgroupBroadcast(qPart1, 5u); let q_14 = subgroupBroadcast(qPart1, 6u); let q_15 = subgroupBroadcast(qPart1, 7u);
    let gPart0 = vec4f(dout[query + lane + 0u]); let gPart1 = vec4f(dout[query + lane + 8u]);
    let g_0 = subgroupBroadcast(gPart0, 0u); let g_1 = subgroupBroadcast(gPart0, 1u); let g_2 = subgroupBroadcast(gPart0, 2u); let g_3 = subgroupBroadcast(gPart0, 3u); let g_4 = subgroupBroadcast(gPart0, 4u); let g_5 = subgroupBroadcast(gPart0, 5u); let g_6 = subgroupBroadcast(gPart0, 6u); let g_7 = subgroupBroadcast(gPart0, 7u); let g_8 = subgroupBroadcast(gPart1, 0u); let g_9 = subgroupBroadcast(gPart1, 1u); let g_10 = subgroupBroadcast(gPart1, 2u); let g_11 = subgroupBroadcast(gPart1, 3u); let g_12 = subgroupBroadcast(gPart1, 4u); let g_13 = subgroupBroadcast(gPart1, 5u); let g_14 = subgroupBroadcast(gPart1, 6u); let g_15 = subgroupBroadcast(gPart1, 7u);
    {
      let p = select(0.0, exp(fold(k0_0 * q_0 + k0_1 * q_1 + k0_2 * q_2 + k0_3 * q_3 + k0_4 * q_4 + k0_5 * q_5 + k0_6 * q_6 + k0_7 * q_7 + k0_8 * q_8 + k0_9 * q_9 + k0_10 * q_10 + k0_11 * q_11 + k0_12 * q_12 + k0_13 * q_13 + k0_14 * q_14 + k0_15 * q_15) * params.scale - lseRow), (row >= j0) & (row < end0));
      let ds = p * (fold(v0_0 * g_0 + v0_1 * g_1 + v0_2 * g_2 + v0_3 * g_3 + v0_4 * g_4 + v0_5 * g_5 + v0_6 * g_6 + v0_7 * g_7 + v0_8 * g_8 + v0_9 * g_9 + v0_10 * g_10 + v0_11 * g_11 + v0_12 * g_12 + v0_13 * g_13 + v0_14 * g_14 + v0_15 * g_15) - deltaRow) * params.scale;
      dv0_0 += p * g_0; dk0_0 += ds * q_0; dv0_1 += p * g_1; dk0_1 += ds * q_1; dv0_2 += p * g_2; dk0_2 += ds * q_2; dv0_3 += p * g_3; dk0_3 += ds * q_3; dv0_4 += p * g_4; dk0_4 += ds * q_4; dv0_5 += p * g_5; dk0_5 += ds * q_5; dv0_6 += p * g_6; dk0_6 += ds * q_6; dv0_7 += p * g_7; dk0_7 += ds * q_7; dv0_8 += p * g_8; dk0_8 += ds * q_8; dv0_9 += p * g_9; dk0_9 += ds * q_9; dv0_10 += p * g_10; dk0_10 += ds * q_10; dv0_11 += p * g_11; dk0_11 += ds * q_11; dv0_12 += p * g_12; dk0_12 += ds * q_12; dv0_13 += p * g_13; dk0_13 += ds * q_13; dv0_14 += p * g_14; dk0_14 += ds * q_14; dv0_15 += p * g_15; dk0_15 += ds * q_15;
    }
    let turn = h + 1u == (head + 1u) * share;
    row = select(row, row + 1u, turn);
    h = select(h + 1u, head * share, turn);
  }

  if (tile + 0u < params.N) {
    dkv[key0 + 0u] = dk0_0; dkv[key0 + vHead + 0u] = dv0_0; dkv[key0 + 1u] = dk0_1; dkv[key0 + vHead + 1u] = dv0_1; dkv[key0 + 2u] = dk0_2; dkv[key0 + vHead + 2u] = dv0_2; dkv[key0 + 3u] = dk0_3; dkv[key0 + vHead + 3u] = dv0_3; dkv[key0 + 4u] = dk0_4; dkv[key0 + vHead + 4u] = dv0_4; dkv[key0 + 5u] = dk0_5; dkv[key0 + vHead + 5u] = dv0_5; dkv[key0 + 6u] = dk0_6; dkv[key0 + vHead + 6u] = dv0_6; dkv[key0 + 7u] = dk0_7; dkv[key0 + vHead + 7u] = dv0_7; dkv[key0 + 8u] = dk0_8; dkv[key0 + vHead + 8u] = dv0_8; dkv[key0 + 9u] = dk0_9; dkv[key0 + vHead + 9u] = dv0_9; dkv[key0 + 10u] = dk0_10; dkv[key0 + vHead + 10u] = dv0_10; dkv[key0 + 11u] = dk0_11; dkv[key0 + vHead + 11u] = dv0_11; dkv[key0 + 12u] = dk0_12; dkv[key0 + vHead + 12u] = dv0_12; dkv[key0 + 13u] = dk0_13; dkv[key0 + vHead + 13u] = dv0_13; dkv[key0 + 14u] = dk0_14; dkv[key0 + vHead + 14u] = dv0_14; dkv[key0 + 15u] = dk0_15; dkv[key0 + vHead + 15u] = dv0_15;
  }
}
