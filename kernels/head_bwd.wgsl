// Turns the logits of a chunk into their gradient, in place. With p_j = exp(z_j - lse), z = logits / T, H the entropy:
//   dlogits[r, j] = 1/T * sum over the entries e of row r of
//                   dLogp[e] (1[j = target_e] - p_j)  -  dEntropy[e] p_j (z_j - lse + H)
//
//   stats       [R, 2]    lse, entropy
//   rowStart    [rows+1]  entries of head row r are rowEntries[rowStart[r]] .. rowEntries[rowStart[r + 1] - 1]
//   rowEntries  [E]
//   targets     [E]
//   dLogp       [E]       d loss / d logp of each entry
//   dEntropy    [E]       d loss / d entropy of each entry
//   logits      [R, V]    in: logits, out: gradient
//
// Grid      LANES threads per row, WG / LANES rows per workgroup; each thread has its own columns, so no barrier is needed.
// Checked   against headBwd() in src/extensions/verify/reference/ops.ts by test/gpu/head_bwd.test.ts.

struct Params {
  R: u32,
  V: u32,
  firstRow: u32,
  invT: f32,
}

override WG: u32 = 64u; // threads in a workgroup
override LANES: u32 = 64u; // threads that share a row; a power of two that divides WG

@group(0) @binding(0) var<storage, read> stats: array<f32>;
@group(0) @binding(1) var<storage, read> rowStart: array<u32>;
@group(0) @binding(2) var<storage, read> rowEntries: array<u32>;
@group(0) @binding(3) var<storage, read> targets: array<u32>;
@group(0) @binding(4) var<storage, read> dLogp: array<f32>;
@group(0) @binding(5) var<storage, read> dEntropy: array<f32>;
@group(0) @binding(6) var<storage, read_write> logits: array<f32>;
@group(0) @binding(7) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let r = (wg.y * grid.x + wg.x) * (WG / LANES) + tid / LANES;
  let lane = tid % LANES;
  if (r >= params.R) { return; }
  let base = r * params.V;
  let first = rowStart[params.firstRow + r];
  let end = rowStart[params.firstRow + r + 1u];
  var a = 0.0;
  var b = 0.0;
  for (var i = first; i < end; i++) {
    a += dLogp[rowEntries[i]];
    b += dEntropy[rowEntries[i]];
  }
  let lse = stats[r * 2u];
  let entropy = stats[r * 2u + 1u];
  for (var j = lane; j < params.V; j += LANES) {
    let z = logits[base + j] * params.invT - lse;
    logits[base + j] = -exp(z) * (a + b * (z + entropy)) * params.invT;
  }
  for (var i = first; i < end; i++) {
    let j = targets[rowEntries[i]];
    if (j % LANES == lane) { logits[base + j] += dLogp[rowEntries[i]] * params.invT; }
  }
}
