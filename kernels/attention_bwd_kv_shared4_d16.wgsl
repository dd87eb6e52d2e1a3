enable subgroups;
diagnostic(off, subgroup_uniformity); // a workgroup is one subgroup, and all its lanes take every turn of every loop

// attention_bwd_kv_d16.wgsl with queries loaded together; same inputs, same outputs.
//
// Grid      a workgroup is one subgroup of 4 lanes: 8 neighbouring rows of one head, 2 a lane. Each lane loads a part of
//           a query and its gradient, and hands it to the others.
// Numerics  as without sharing, the same bits; to a row that does not see a key, it adds 0 (so it must be finite).
// Checked   against src/model/reference/ops.ts by test/gpu/attention_bwd_kv_shared4_d16.test.ts. Printed by scripts/gen-attention.mjs: edit
//           scripts/lib/attentionShared.mjs.

struct Params {
  N: u32,      // rows
  H: u32,      // query heads
  K: u32,      // key/value heads
  D: u32,      // 16
  scale: f32,  // 1 / sqrt(D)
}

override WG: u32 = 4u; // one subgroup
const D4 = 4u; // vec4s in a head
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
  let tile = spanStart + lane * 2u;
  let share = params.H / params.K; // query heads that read this key head
  let vHead = params.K * D4;
  let j0 = min(tile + 0u, params.N - 1u); let end0 = queryEnd[j0];
  let key0 = j0 * 2u * vHead + head * D4;
  let k0_0 = vec4f(kv[key0 + 0u]); let k0_1 = vec4f(kv[key0 + 1u]); let k0_2 = vec4f(kv[key0 + 2u]); let k0_3 = vec4f(kv[key0 + 3u]);
  let v0_0 = vec4f(kv[key0 + vHead + 0u]); let v0_1 = vec4f(kv[key0 + vHead + 1u]); let v0_2 = vec4f(kv[key0 + vHead + 2u]); let v0_3 = vec4f(kv[key0 + vHead + 3u]);
  var dk0_0 = vec4f(); var dv0_0 = vec4f(); var dk0_1 = vec4f(); var dv0_1 = vec4f(); var dk0_2 = vec4f(); var dv0_2 = vec4f(); var dk0_3 = vec4f(); var dv0_3 = vec4f();
  let j1 = min(tile + 1u, params.N - 1u); let end1 = queryEnd[j1];
  let key1 = j1 * 2u * vHead + head * D4;
  let k1_0 = vec4f(kv[key1 + 0u]); let k1_1 = vec4f(kv[key1 + 1u]); let k1_2 = vec4f(kv[key1 + 2u]); let k1_3 = vec4f(kv[key1 + 3u]);
  let v1_0 = vec4f(kv[key1 + vHead + 0u]); let v1_1 = vec4f(kv[key1 + vHead + 1u]); let v1_2 = vec4f(kv[key1 + vHead + 2u]); let v1_3 = vec4f(kv[key1 + vHead + 3u]);
  var dk1_0 = vec4f(); var dv1_0 = vec4f(); var dk1_1 = vec4f(); var dv1_1 = vec4f(); var dk1_2 = vec4f(); var dv1_2 = vec4f(); var dk1_3 = vec4f(); var dv1_3 = vec4f();
  let last = subgroupMax(max(end0, end1));

  // One loop over (row, query head): two nested loops would carry every register through both.
  var row = spanStart;
  var h = head * share;
  while (row < last) {
    let query = (row * params.H + h) * D4;
    let lseRow = lse[row * params.H + h];
    let deltaRow = delta[row * params.H + h];
    let qPart0 = vec4f(q[query + lane + 0u]);
    let q_0 = subgroupBroadcast(qPart0, 0u); let q_1 = subgroupBroadcast(qPart0, 1u); let q_2 = subgroupBroadcast(qPart0, 2u); let q_3 = subgroupBroadcast(qPart0, 3u);
    let gPart0 = vec4f(dout[query + lane + 0u]);
    let g_0 = subgroupBroadcast(gPart0, 0u); let g_1 = subgroupBroadcast(gPart0, 1u); let g_2 = subgroupBroadcast(gPart0, 2u); let g_3 = subgroupBroadcast(gPart0, 3u);
    {
      let p = select(0.0, exp(fold(k0_0 * q_0 + k0_1 * q_1 + k0_2 * q_2 + k0_3 * q_3) * params.scale - lseRow), (row >= j0) & (row < end0));
      let ds = p * (fold(v0_0 * g_0 + v0_1 * g_1 + v0_2 * g_2 + v0_3 * g_3) - deltaRow) * params.scale;
      dv0_0 += p * g_0; dk0_0 += ds * q_0; dv0_1 += p * g_1; dk0_1 += ds * q_1; dv0_2 += p * g_2; dk0_2 += ds * q_2; dv0_3 += p * g_3; dk0_3 += ds * q_3;
    }
    {
      let p = select(0.0, exp(fold(k1_0 * q_0 + k1_1 * q_1 + k1_2 * q_2 + k1_3 * q_3) * params.scale - lseRow), (row >= j1) & (row < end1));
      let ds = p * (fold(v1_0 * g_0 + v1_1 * g_1 + v1_2 * g_2 + v1_3 * g_3) - deltaRow) * params.scale;
      dv1_0 += p * g_0; dk1_0 += ds * q_0; dv1_1 += p * g_1; dk1_1 += ds * q_1; dv1_2 += p * g_2; dk1_2 += ds * q_2; dv1_3 += p * g_3; dk1_3 += ds * q_3;
    }
    let turn = h + 1u == (head + 1u) * share;
    row = select(row, row + 1u, turn);
    h = select(h + 1u, head * share, turn);
  }

  if (tile + 0u < params.N) {
    dkv[key0 + 0u] = dk0_0; dkv[key0 + vHead + 0u] = dv0_0; dkv[key0 + 1u] = dk0_1; dkv[key0 + vHead + 1u] = dv0_1; dkv[key0 + 2u] = dk0_2; dkv[key0 + vHead + 2u] = dv0_2; dkv[key0 + 3u] = dk0_3; dkv[key0 + vHead + 3u] = dv0_3;
  }
  if (tile + 1u < params.N) {
    dkv[key1 + 0u] = dk1_0; dkv[key1 + vHead + 0u] = dv1_0; dkv[key1 + 1u] = dk1_1; dkv[key1 + vHead + 1u] = dv1_1; dkv[key1 + 2u] = dk1_2; dkv[key1 + vHead + 2u] = dv1_2; dkv[key1 + 3u] = dk1_3; dkv[key1 + vHead + 3u] = dv1_3;
  }
}
