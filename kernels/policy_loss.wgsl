// Gradient of the policy loss at every predicted token:
//   dLogp[e] = weight_e * rowGrad(e)  +  klCoef * klWeight_e * d kl_e / d logp_e
//
//   logp         [E]      log-prob under the policy being trained, natural log
//   inputs       [E, 6]   oldLogp, advantage, weight, refLogp, klWeight, flags (1 = trained, 2 = selected by the loss)
//   entrySample  [E]      sample of each entry
//   stats        [S, 4]   from policy_stats.wgsl; unused if the loss has no sequence term
//   dLogp        [E]      output; 0 where not trained
//
// This file is the frame of all losses. It is complete, with plain REINFORCE as its row. A run uses the file from the bindings
// on. src/gpu/ops/policy_loss.ts replaces the part above the bindings: Params, with the numbers of the loss as additional
// fields, and the rowGrad of the loss from its file in src/grpo/losses/ or from a custom loss.
//
// Grid      one thread per entry. Any E >= 1.
// Numerics  f32; rows clamp log ratios as verl does, and the unclamped ones at 80, below overflow.
// Checked   against computePolicyLoss() in src/grpo/losses/index.ts, for every loss, by test/gpu/policy_loss.test.ts.

struct Params {
  E: u32,
  klType: u32,
  klCoef: f32,
  klClamp: f32,
}

fn rowGrad(t: Token) -> f32 { return -t.advantage; }

@group(0) @binding(0) var<storage, read> logp: array<f32>;
@group(0) @binding(1) var<storage, read> inputs: array<f32>;
@group(0) @binding(2) var<storage, read> entrySample: array<u32>;
@group(0) @binding(3) var<storage, read> stats: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> dLogp: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

/// Inputs of a row for one token. The last three are sums over the trained tokens of its sequence, for losses with a sequence term.
struct Token {
  logp: f32,         // log-prob under the policy being trained
  oldLogp: f32,
  logRatio: f32,     // logp - oldLogp
  advantage: f32,
  selected: bool,
  length: f32,       // trained tokens
  sum: f32,          // of the sequence term
  advantageSum: f32,
}

const K1 = 0u;
const K2 = 1u;
const K3 = 2u;
const ABS = 3u;
const RATIO_K3 = 4u;

/// exp(x) - 1, without cancellation near 0.
fn expMinusOne(x: f32) -> f32 {
  if (abs(x) < 0.02) { return x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x / 24.0))); }
  return exp(x) - 1.0;
}

/// d kl / d logp with d = logp - refLogp and logRatio = logp - oldLogp.
fn klGrad(d: f32, logRatio: f32) -> f32 {
  if (params.klType == K1) { return 1.0; }
  if (params.klType == K2) { return d; }
  if (params.klType == ABS) { return sign(d); }
  let x = min(-d, 20.0);
  let grown = expMinusOne(x);
  let value = grown - x - grown * min(d + 20.0, 0.0) + min(d + 20.0, 0.0);
  let dropped = value > params.klClamp || (params.klClamp < 1e30 && abs(d) > 20.0);
  let grad = select(-grown, 0.0, dropped);
  if (params.klType == K3) { return grad; }
  let bounded = min(value, params.klClamp);
  return exp(clamp(logRatio, -20.0, 20.0)) * (grad + select(0.0, bounded, abs(logRatio) <= 20.0));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) tid: u32) {
  let e = (wg.y * grid.x + wg.x) * 64u + tid;
  if (e >= params.E) { return; }
  let oldLogp = inputs[e * 6u];
  let flags = u32(inputs[e * 6u + 5u]);
  if ((flags & 1u) == 0u) {
    dLogp[e] = 0.0;
    return;
  }
  let logRatio = logp[e] - oldLogp;
  let sequence = stats[entrySample[e]];
  let selected = (flags & 2u) != 0u;
  let token = Token(logp[e], oldLogp, logRatio, inputs[e * 6u + 1u], selected, sequence.x, sequence.y, sequence.z);
  var grad = inputs[e * 6u + 2u] * rowGrad(token);
  if (params.klCoef != 0.0) {
    grad += params.klCoef * inputs[e * 6u + 4u] * klGrad(logp[e] - inputs[e * 6u + 3u], logRatio);
  }
  dLogp[e] = grad;
}
