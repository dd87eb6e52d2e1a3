// The k most likely tokens at the position of the token just sampled, with their log-probs under the unchanged logits; k <= 8.
// Largest first; for equal log-probs the lower index first.
//
//   entries  [n, 4]        slot, -, row of logits, 1 = a token was sampled (adjust_logits.wgsl)
//   logits   [R, V]        unchanged
//   stats    [R, 2]        lse at the sampling temperature, -
//   control  [slots, 8]    -, -, -, 1/T (f32 bits; 0 = greedy)
//   extras   [slots, 136]  k at 5
//   state    [slots, 4]    -, -, tokens sampled, -
//   details  [slots, CAP, 17]  written: k x (token, log-prob bits) from 1 on; 0xffffffff as token if V < k
//
// Grid      one workgroup per entry; k passes over the row.
// Checked   against a sort of logProbsOf() in test/gpu/sampleReference.ts by test/gpu/top_logprobs.test.ts.

struct Params {
  n: u32,
  V: u32,
  cap: u32,
}

override WG: u32 = 64u;

const EXTRA = 136u;
const DETAIL = 17u;
const NONE = 0xffffffffu;

@group(0) @binding(0) var<storage, read> entries: array<u32>;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read> stats: array<f32>;
@group(0) @binding(3) var<storage, read> control: array<u32>;
@group(0) @binding(4) var<storage, read> extras: array<u32>;
@group(0) @binding(5) var<storage, read> state: array<u32>;
@group(0) @binding(6) var<storage, read_write> details: array<u32>;
@group(0) @binding(7) var<uniform> params: Params;

var<workgroup> partKey: array<u32, WG>;
var<workgroup> partAt: array<u32, WG>;
var<workgroup> wanted: u32;

/** Order-preserving map from float to u32. */
fn ordered(x: f32) -> u32 {
  let b = bitcast<u32>(x);
  return select(b | 0x80000000u, ~b, (b & 0x80000000u) != 0u);
}

/** True if (key, at) is before (otherKey, otherAt). */
fn ahead(key: u32, at: u32, otherKey: u32, otherAt: u32) -> bool {
  return key > otherKey || (key == otherKey && at < otherAt);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = wg.y * grid.x + wg.x;
  if (i >= params.n) { return; }
  let slot = entries[i * 4u];
  if (tid == 0u) { wanted = select(0u, extras[slot * EXTRA + 5u], entries[i * 4u + 3u] != 0u); }
  let k = workgroupUniformLoad(&wanted);
  let base = entries[i * 4u + 2u] * params.V;
  let out = (slot * params.cap + state[slot * 4u + 2u] - 1u) * DETAIL + 1u;
  let invT = bitcast<f32>(control[slot * 8u + 3u]);
  let scale = select(invT, 1.0, invT == 0.0);
  let lse = stats[entries[i * 4u + 2u] * 2u];
  var lastKey = NONE;
  var lastAt = 0u;
  for (var place = 0u; place < k; place++) {
    var key = 0u;
    var at = NONE;
    for (var j = tid; j < params.V; j += WG) {
      let candidate = ordered(logits[base + j]);
      let left = place == 0u || ahead(lastKey, lastAt, candidate, j);
      if (left && (at == NONE || ahead(candidate, j, key, at))) { key = candidate; at = j; }
    }
    partKey[tid] = key;
    partAt[tid] = at;
    workgroupBarrier();
    for (var t = 0u; t < WG; t++) {
      if (partAt[t] != NONE && (at == NONE || ahead(partKey[t], partAt[t], key, at))) { key = partKey[t]; at = partAt[t]; }
    }
    workgroupBarrier();
    lastKey = key;
    lastAt = at;
    if (tid == 0u) {
      details[out + place * 2u] = at;
      if (at != NONE) { details[out + place * 2u + 1u] = bitcast<u32>(logits[base + at] * scale - lse); }
    }
  }
}
