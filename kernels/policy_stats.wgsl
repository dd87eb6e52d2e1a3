// Sums over the trained entries of each sample, for sequence-level policy losses:
//   stats[s] = (trained entries, sum of the loss's term, sum of advantages, 0)
//
//   logp      [E]      log-prob under the policy being trained
//   inputs    [E, 6]   see policy_loss.wgsl
//   seqStart  [S + 1]  entries of sample s are seqStart[s] .. seqStart[s + 1]
//   stats     [S, 4]   output
//
// The term in this file is the log ratio itself. A run uses the file from the bindings on, as in policy_loss.wgsl, and puts
// Params with the numbers of the loss as additional fields and the loss's own sequenceTerm in front of them.
//
// Grid      one thread per sample: the order of every sum is fixed, and there are few samples.
// Checked   against float64 sums in test/gpu/policy_stats.test.ts, and through policy_loss.wgsl by test/gpu/policy_loss.test.ts.

struct Params {
  S: u32,
}

fn sequenceTerm(logRatio: f32, advantage: f32) -> f32 { return logRatio; }

@group(0) @binding(0) var<storage, read> logp: array<f32>;
@group(0) @binding(1) var<storage, read> inputs: array<f32>;
@group(0) @binding(2) var<storage, read> seqStart: array<u32>;
@group(0) @binding(3) var<storage, read_write> stats: array<vec4f>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let s = (wg.y * grid.x + wg.x) * 64u + tid;
  if (s >= params.S) { return; }
  var sums = vec4f(0.0);
  for (var e = seqStart[s]; e < seqStart[s + 1u]; e++) {
    if ((u32(inputs[e * 6u + 5u]) & 1u) == 0u) { continue; }
    let advantage = inputs[e * 6u + 1u];
    sums += vec4f(1.0, sequenceTerm(logp[e] - inputs[e * 6u], advantage), advantage, 0.0);
  }
  stats[s] = sums;
}
