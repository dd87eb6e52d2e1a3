// Excludes tokens from sampling, after adjust_logits.wgsl and before sample.wgsl:
//   z_j = FORBIDDEN   if bit j of the slot's mask is 0
//
//   entries   [n, 4]                 slot, -, -, 1 = the slot still samples (adjust_logits.wgsl)
//   masks     [slots, ceil(V / 32)]  bit j of a row: token j is allowed
//   adjusted  [n, V]                 in/out; row i stays unchanged if the slot is done
//
// Grid      one workgroup per entry.
// Numerics  allowed logits pass unchanged; record_draw.wgsl accounts for the excluded tokens in the log mass.
// Checked   against a loop in test/gpu/mask_logits.test.ts.

struct Params {
  n: u32,
  V: u32,
}

override WG: u32 = 64u;

const FORBIDDEN = -1e30; // same value as in adjust_logits.wgsl

@group(0) @binding(0) var<storage, read> entries: array<u32>;
@group(0) @binding(1) var<storage, read> masks: array<u32>;
@group(0) @binding(2) var<storage, read_write> adjusted: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let i = wg.y * grid.x + wg.x;
  if (i >= params.n || entries[i * 4u + 3u] == 0u) { return; }
  let row = entries[i * 4u] * ((params.V + 31u) / 32u);
  for (var j = tid; j < params.V; j += WG) {
    if (((masks[row + j / 32u] >> (j % 32u)) & 1u) == 0u) { adjusted[i * params.V + j] = FORBIDDEN; }
  }
}
