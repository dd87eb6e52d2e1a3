// What a sequence-level policy loss needs of each sample: sums over its trained entries.
//   stats[s] = (trained entries, sum of the loss's term, sum of advantages, 0)
//   term     d = logp - oldLogp                              GSPO, LUSPO, REINFORCE with a sequence weight
//            d, clipped at -clipLow / clipHigh on the side its advantage pushes to        GMPO
//            d, clamped to +-20                              VESPO
//
//   logp      [E]      log-prob under the policy being trained
//   inputs    [E, 6]   see policy_loss.wgsl
//   seqStart  [S + 1]  entries of sample s are seqStart[s] .. seqStart[s + 1]
//   stats     [S, 4]   output
//
// Grid      one thread per sample: the order of every sum is fixed, and samples are few.
// Checked   through policy_loss.wgsl by test/gpu/policy_loss.test.ts.

struct Params {
  S: u32,
  mode: u32,
  clipLow: f32,
  clipHigh: f32,
}

const GEO_MEAN = 4u;
const VESPO = 11u;

@group(0) @binding(0) var<storage, read> logp: array<f32>;
@group(0) @binding(1) var<storage, read> inputs: array<f32>;
@group(0) @binding(2) var<storage, read> seqStart: array<u32>;
@group(0) @binding(3) var<storage, read_write> stats: array<vec4f>;
@group(0) @binding(4) var<uniform> params: Params;

fn term(d: f32, advantage: f32) -> f32 {
  if (params.mode == VESPO) { return clamp(d, -20.0, 20.0); }
  if (params.mode != GEO_MEAN) { return d; }
  if (advantage > 0.0) { return min(d, params.clipHigh); }
  if (advantage < 0.0) { return max(d, -params.clipLow); }
  return 0.0;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let s = (wg.y * grid.x + wg.x) * 64u + tid;
  if (s >= params.S) { return; }
  var sums = vec4f(0.0);
  for (var e = seqStart[s]; e < seqStart[s + 1u]; e++) {
    if ((u32(inputs[e * 6u + 5u]) & 1u) == 0u) { continue; }
    let advantage = inputs[e * 6u + 1u];
    sums += vec4f(1.0, term(logp[e] - inputs[e * 6u], advantage), advantage, 0.0);
  }
  stats[s] = sums;
}
