enable subgroups;
diagnostic(off, subgroup_uniformity); // a workgroup is one subgroup, and all its lanes take every turn of every loop

// attention_bwd_kv_d32.wgsl with queries loaded together; same inputs, same outputs.
//
// Grid      a workgroup is one subgroup of 8 lanes: 16 neighbouring rows of one head, 2 a lane. Each lane loads a part of
//           a query and its gradient, and hands it to the others.
// Numerics  as without sharing, the same bits; to a row that does not see a key, it adds 0 (so it must be finite).
// Checked   against src/model/reference/ops.ts by test/gpu/attention_bwd_kv_shared8_d32.test.ts. Printed by scripts/gen-attention.mjs: edit
//           scripts/lib/attentionShared.mjs.

struct Params {
  N: u32,      // rows
  H: u32,      // query heads
  K: u32,      // key/value heads
  D: u32,      // 32
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = 8u; // one subgroup
const D4 = 8u; // vec4s in a head
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
  let spanStart = at / params.K * 16u;
  if (spanStart >= params.N) { return; }
  let spanEnd = min(spanStart + 16u, params.N);
  let tile = spanStart + lane * 2u;
  let share = params.H / params.K; // query heads that read this key head
  let vHead = params.K * D4;
  let j0 = min(tile + 0u, params.N - 1u); let end0 = queryEnd[j0];
  let key0 = j0 * 2u * vHead + head * D4;
  let k0_0 = vec4f(kv[key0 + 0u]); let k0_1 = vec4f(kv[key0 + 1u]); let k0_2 = vec4f(kv[key0 + 2u]); let k0_3 = vec4f(kv[key0 + 3u]); let k0_4 = vec4f(kv[key0 + 4u]); let k0_5 = vec4f(kv[key0 + 5u]); let k0_6 = vec4f(kv[key0 + 6u]); let k0_7 = vec4f(kv[key0 + 7u]);
  let v0_0 = vec4f(kv[key0 + vHead + 0u]); let v0_1 = vec4f(kv[key0 + vHead + 1u]); let v0_2 = vec4f(kv[key0 + vHead + 2u]); let v0_3 = vec4f(kv[key0 + vHead + 3u]); let v0_4 = vec4f(kv[key0 + vHead + 4u]); let v0_5 = vec4f(kv[key0 + vHead + 5u]); let v0_6 = vec4f(kv[key0 + vHead + 6u]); let v0_7 = vec4f(kv[key0 + vHead + 7u]);
  var dk0_0 = vec4f(); var dv0_0 = vec4f(); var dk0_1 = vec4f(); var dv0_1 = vec4f(); var dk0_2 = vec4f(); var dv0_2 = vec4f(); var dk0_3 = vec4f(); var dv0_3 = vec4f(); var dk0_4 = vec4f(); var dv0_4 = vec4f(); var dk0_5 = vec4f(); var dv0_5 = vec4f(); var dk0_6 = vec4f(); var dv0_6 = vec4f(); var dk0_7 = vec4f(); var dv0_7 = vec4f();
  let j1 = min(tile + 1u, params.N - 1u); let end1 = queryEnd[j1];
  let key1 = j1 * 2u * vHead + head * D4;
  let k1_0 = vec4f(kv[key1 + 0u]); let k1_1 = vec4f(kv[key1 + 1u]); let k1_2 = vec4f(kv[key1 + 2u]); let k1_3 = vec4f(kv[key1 + 3u]); let k1_4 = vec4f(kv[key1 + 4u]); let k1_5 = vec4f(kv[key1 + 5u]); let k1_6 = vec4f(kv[key1 + 6u]); let k1_7 = vec4f(kv[key1 + 7u]);
  let v1_0 = vec4f(kv[key1 + vHead + 0u]); let v1_1 = vec4f(kv[key1 + vHead + 1u]); let v1_2 = vec4f(kv[key1 + vHead + 2u]); let v1_3 = vec4f(kv[key1 + vHead + 3u]); let v1_4 = vec4f(kv[key1 + vHead + 4u]); let v1_5 = vec4f(kv[key1 + vHead + 5u]); let v1_6 = vec4f(kv[key1 + vHead + 6u]); let v1_7 = vec4f(kv[key1 + vHead + 7u]);
  var dk1_0 = vec4f(); var dv1_0 = vec4f(); var dk1_1 = vec4f(); var dv1_1 = vec4f(); var dk1_2 = vec4f(); var dv1_2 = vec4f(); var dk1_3 = vec4f(); var dv1_3 = vec4f(); var dk1_4 = vec4f(); var dv1_4 = vec4f(); var dk1_5 = vec4f(); var dv1_5 = vec4f(); var dk1_6 = vec4f(); var dv1_6 = vec4f(); var dk1_7 = vec4f(); var dv1_7 = vec4f();
  let last = subgroupMax(max(end0, end1));

  // One loop over (row, query head): two nested loops would carry every register through both.
  var row = spanStart;
  var h = head * share;
  while (row < last) {
    let query = (row * params.H + h) * D4;
    let lseRow = lse[row * params.H + h];
    let deltaRow = delta[row * params.H + h];
    let qPart0 = vec4f(q[query + lane + 0u]);
    let q_0 = subgroupBroadcast(qPart0, 0u); let q_1 = subgroupBroadcast(qPart0, 1u); let q_2 = subgroupBroadcast(qPart0, 2u); let q_3 = subgroupBroadcast(qPart0, 3u); let q_4 = subgroupBroadcast(qPart0, 4u); let q_5 = subgroupBroadcast(qPart0, 5u); let q_6 = subgroupBroadcast(qPart0, 6u); let q_7 = subgroupBroadcast(qPart0, 7u);
    let gPart0 = vec4f(dout[query + lane + 0u]);
    let g_0 = subgroupBroadcast(gPart0, 0u); let g_1 = subgroupBroadcast(gPart0, 1u); let g_2 = subgroupBroadcast(gPart0, 2u); let g_3 = subgroupBroadcast(gPart0, 3u); let g_4 = subgroupBroadcast(gPart0, 4u); let g_5 = subgroupBroadcast(gPart0, 5u); let g_6 = subgroupBroadcast(gPart0, 6u); let g_7 = subgroupBroadcast(gPart0, 7u);
    {
      let p = select(0.0, exp(fold(k0_0 * q_0 + k0_1 * q_1 + k0_2 * q_2 + k0_3 * q_3 + k0_4 * q_4 + k0_5 * q_5 + k0_6 * q_6 + k0_7 * q_7) * params.scale - lseRow), (row >= j0) & (row < end0));
      let ds = p * (fold(v0_0 * g_0 + v0_1 * g_1 + v0_2 * g_2 + v0_3 * g_3 + v0_4 * g_4 + v0_5 * g_5 + v0_6 * g_6 + v0_7 * g_7) - deltaRow) * params.scale;
      dv0_0 += p * g_0; dk0_0 += ds * q_0; dv0_1 += p * g_1; dk0_1 += ds * q_1; dv0_2 += p * g_2; dk0_2 += ds * q_2; dv0_3 += p * g_3; dk0_3 += ds * q_3; dv0_4 += p * g_4; dk0_4 += ds * q_4; dv0_5 += p * g_5; dk0_5 += ds * q_5; dv0_6 += p * g_6; dk0_6 += ds * q_6; dv0_7 += p * g_7; dk0_7 += ds * q_7;
    }
    {
      let p = select(0.0, exp(fold(k1_0 * q_0 + k1_1 * q_1 + k1_2 * q_2 + k1_3 * q_3 + k1_4 * q_4 + k1_5 * q_5 + k1_6 * q_6 + k1_7 * q_7) * params.scale - lseRow), (row >= j1) & (row < end1));
      let ds = p * (fold(v1_0 * g_0 + v1_1 * g_1 + v1_2 * g_2 + v1_3 * g_3 + v1_4 * g_4 + v1_5 * g_5 + v1_6 * g_6 + v1_7 * g_7) - deltaRow) * params.scale;
      dv1_0 += p * g_0; dk1_0 += ds * q_0; dv1_1 += p * g_1; dk1_1 += ds * q_1; dv1_2 += p * g_2; dk1_2 += ds * q_2; dv1_3 += p * g_3; dk1_3 += ds * q_3; dv1_4 += p * g_4; dk1_4 += ds * q_4; dv1_5 += p * g_5; dk1_5 += ds * q_5; dv1_6 += p * g_6; dk1_6 += ds * q_6; dv1_7 += p * g_7; dk1_7 += ds * q_7;
    }
    let turn = h + 1u == (head + 1u) * share;
    row = select(row, row + 1u, turn);
    h = select(h + 1u, head * share, turn);
  }

  if (tile + 0u < params.N) {
    dkv[key0 + 0u] = dk0_0; dkv[key0 + vHead + 0u] = dv0_0; dkv[key0 + 1u] = dk0_1; dkv[key0 + vHead + 1u] = dv0_1; dkv[key0 + 2u] = dk0_2; dkv[key0 + vHead + 2u] = dv0_2; dkv[key0 + 3u] = dk0_3; dkv[key0 + vHead + 3u] = dv0_3; dkv[key0 + 4u] = dk0_4; dkv[key0 + vHead + 4u] = dv0_4; dkv[key0 + 5u] = dk0_5; dkv[key0 + vHead + 5u] = dv0_5; dkv[key0 + 6u] = dk0_6; dkv[key0 + vHead + 6u] = dv0_6; dkv[key0 + 7u] = dk0_7; dkv[key0 + vHead + 7u] = dv0_7;
  }
  if (tile + 1u < params.N) {
    dkv[key1 + 0u] = dk1_0; dkv[key1 + vHead + 0u] = dv1_0; dkv[key1 + 1u] = dk1_1; dkv[key1 + vHead + 1u] = dv1_1; dkv[key1 + 2u] = dk1_2; dkv[key1 + vHead + 2u] = dv1_2; dkv[key1 + 3u] = dk1_3; dkv[key1 + vHead + 3u] = dv1_3; dkv[key1 + 4u] = dk1_4; dkv[key1 + vHead + 4u] = dv1_4; dkv[key1 + 5u] = dk1_5; dkv[key1 + vHead + 5u] = dv1_5; dkv[key1 + 6u] = dk1_6; dkv[key1 + vHead + 6u] = dv1_6; dkv[key1 + 7u] = dk1_7; dkv[key1 + vHead + 7u] = dv1_7;
  }
}
