// Gradient of the policy loss at every predicted token, one row of src/grpo/losses/ a mode:
//   dLogp[e] = weight_e * g(logp_e, oldLogp_e, advantage_e, its sequence)  +  klCoef * klWeight_e * d kl_e / d logp_e
//
//   logp         [E]      log-prob under the policy being trained, natural log
//   inputs       [E, 6]   oldLogp, advantage, weight, refLogp, klWeight, flags (1 = trained, 2 = selected by clip-cov / kl-cov)
//   entrySample  [E]      sample of each entry; read by sequence-level modes only
//   stats        [S, 4]   from policy_stats.wgsl, for the same modes
//   dLogp        [E]      output; 0 where not trained
//
// Grid      one thread per entry. Any E >= 1.
// Numerics  f32; log ratios are clamped as verl does, and the unclamped ones at 80, below overflow.
// Checked   against src/grpo/losses/index.ts (float64) by test/gpu/policy_loss.test.ts.

struct Params {
  E: u32,
  mode: u32,
  klType: u32,
  clipLow: f32,
  clipHigh: f32,
  clipC: f32,
  klCoef: f32,
  klClamp: f32,
  p0: f32,
  p1: f32,
  p2: f32,
  p3: f32,
}

// Modes; src/gpu/ops/policy_loss.ts has the same numbers and says what p0..p3 are.
const VANILLA = 0u;
const GSPO = 1u;
const SAPO = 2u;
const CISPO = 3u;
const GEO_MEAN = 4u;
const GPG = 5u;
const DPPO_TV = 6u;
const DPPO_KL = 7u;
const DRO = 8u;
const CLIP_COV = 9u;
const KL_COV = 10u;
const VESPO = 11u;
const REINFORCE = 12u;

const K1 = 0u;
const K2 = 1u;
const K3 = 2u;
const ABS = 3u;
const RATIO_K3 = 4u;

@group(0) @binding(0) var<storage, read> logp: array<f32>;
@group(0) @binding(1) var<storage, read> inputs: array<f32>;
@group(0) @binding(2) var<storage, read> entrySample: array<u32>;
@group(0) @binding(3) var<storage, read> stats: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> dLogp: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

/// exp(x) - 1, without cancellation near 0.
fn expMinusOne(x: f32) -> f32 {
  if (abs(x) < 0.02) { return x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x / 24.0))); }
  return exp(x) - 1.0;
}

/// Gradient of max(-A r, -A clip(r)) by log r.
fn clipped(ratio: f32, a: f32) -> f32 {
  let bounded = clamp(ratio, 1.0 - params.clipLow, 1.0 + params.clipHigh);
  return select(-a * ratio, 0.0, -a * bounded > -a * ratio);
}

fn vanilla(ratio: f32, a: f32) -> f32 {
  let bounded = clamp(ratio, 1.0 - params.clipLow, 1.0 + params.clipHigh);
  let dualClip = a < 0.0 && max(-a * ratio, -a * bounded) > -a * params.clipC;
  return select(clipped(ratio, a), 0.0, dualClip);
}

fn sapo(ratio: f32, a: f32) -> f32 {
  let tau = select(params.p1, params.p0, a > 0.0);
  let tail = exp(-min(abs(tau * (ratio - 1.0)), 80.0)); // sigmoid' = tail / (1 + tail)^2, even and without cancellation
  return -a * 4.0 * tail / ((1.0 + tail) * (1.0 + tail)) * ratio;
}

fn geoMean(d: f32, a: f32, sequence: vec4f) -> f32 {
  let moves = (a > 0.0 && d <= params.clipHigh) || (a < 0.0 && d >= -params.clipLow);
  return select(0.0, -sequence.z / sequence.x * exp(min(sequence.y / sequence.x, 80.0)), moves);
}

fn dppo(ratio: f32, a: f32, kept: bool) -> f32 {
  return select(0.0, -a * min(ratio, params.clipC), kept);
}

fn dppoTvKept(p: f32, pOld: f32, a: f32) -> bool {
  return select(p - pOld >= -params.clipLow, p - pOld <= params.clipHigh, a > 0.0);
}

fn dppoKlKept(p: f32, pOld: f32, d: f32, a: f32) -> bool {
  let kl = -pOld * d + (1.0 - pOld) * log((1.0 - pOld + 1e-8) / (1.0 - p + 1e-8));
  return select(kl <= params.clipLow || p >= pOld, kl <= params.clipHigh || p <= pOld, a > 0.0);
}

fn vespo(a: f32, sequence: vec4f) -> f32 {
  let k = select(params.p2, params.p0, a >= 0.0);
  let lambda = max(select(params.p3, params.p1, a >= 0.0), 1e-4);
  let logWeight = clamp(sequence.y, -18.420681, 20.0);
  return -a * exp(max(lambda + k * logWeight - lambda * exp(logWeight), -80.0));
}

/// p0: 0 = no weight, 1 = the token's ratio, 2 = the sequence's; p1: truncation.
fn reinforce(d: f32, a: f32, sequence: vec4f) -> f32 {
  if (params.p0 == 0.0) { return -a; }
  let logWeight = clamp(select(d, sequence.y, params.p0 == 2.0), -20.0, 20.0);
  return -a * min(exp(logWeight), params.p1);
}

fn policyGrad(e: u32, d: f32, a: f32, chosen: bool) -> f32 {
  let clampedRatio = exp(clamp(d, -20.0, 20.0));
  let ratio = exp(min(d, 80.0));
  let passes = abs(d) <= 20.0;
  let p = exp(logp[e]);
  let pOld = exp(logp[e] - d);
  switch (params.mode) {
    case VANILLA: { return select(0.0, vanilla(clampedRatio, a), passes); }
    case GSPO: {
      let mean = sequenceOf(e).y / sequenceOf(e).x;
      return select(0.0, clipped(exp(min(mean, 10.0)), a), mean <= 10.0);
    }
    case SAPO: { return select(0.0, sapo(clampedRatio, a), passes); }
    case CISPO: { return -a * clamp(clampedRatio, 1.0 - params.clipLow, params.p0); }
    case GEO_MEAN: { return geoMean(d, a, sequenceOf(e)); }
    case GPG: { return -a; }
    case DPPO_TV: { return dppo(clampedRatio, a, dppoTvKept(p, pOld, a)); }
    case DPPO_KL: { return dppo(clampedRatio, a, dppoKlKept(p, pOld, d, a)); }
    case DRO: { return -a + params.p0 * d; }
    case CLIP_COV: { return select(clipped(ratio, a), 0.0, chosen); }
    case KL_COV: { return -a * ratio + select(0.0, params.p0 * sign(d), chosen); }
    case VESPO: { return vespo(a, sequenceOf(e)); }
    default: { return reinforce(d, a, sequenceOf(e)); }
  }
}

fn sequenceOf(e: u32) -> vec4f {
  return stats[entrySample[e]];
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
  var grad = inputs[e * 6u + 2u] * policyGrad(e, logRatio, inputs[e * 6u + 1u], (flags & 2u) != 0u);
  if (params.klCoef != 0.0) {
    grad += params.klCoef * inputs[e * 6u + 4u] * klGrad(logp[e] - inputs[e * 6u + 3u], logRatio);
  }
  dLogp[e] = grad;
}
