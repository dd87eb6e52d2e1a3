/**
 * KL to the reference policy, per token, from log-probs alone (http://joschu.net/blog/kl-approx.html). With
 * d = logp - refLogp:
 *
 *   k1 (kl)           d                      unbiased value, high variance
 *   abs               |d|
 *   k2 (mse)          d^2 / 2                its gradient is unbiased
 *   k3 (low_var_kl)   exp(-d) + d - 1        unbiased value, low variance, never negative
 *   k1+, k3+, abs+    value of k1, k3 or abs, gradient of k2
 *   r*k3              k3 times r = pi / piOld, gradient through both: unbiased if the sampler is not pi (TRL's
 *                     use_bias_correction_kl)
 *
 * verl clamps k3's value at 10, which zeroes its gradient just when the policy has collapsed far below the reference.
 * The default here has no clamp; `valueClamp: 10` returns verl's numbers.
 */

interface KlTerm {
  value: number;
  /** d value / d logp. */
  grad: number;
}

interface KlOptions {
  /** Log-prob under the sampling policy; needed by r*k3. */
  oldLogp?: number;
  /** Bound on |k3|. Infinity (default) = no bound, 10 = verl's. */
  valueClamp?: number;
}

export const KL_TYPES = ['k1', 'k2', 'k3', 'abs', 'k1+', 'k3+', 'r*k3'] as const;

const ALIASES: Readonly<Record<string, string>> = { kl: 'k1', mse: 'k2', low_var_kl: 'k3' };

/**
 * Largest exponent. Above it, unclamped k3 continues as a straight line, finite and with a gradient. With a clamp, and
 * in the ratio of r*k3, the exponent is clamped there and has no gradient.
 */
const EXP_LIMIT = 20;

/** Returns the KL estimate of one token and its derivative. Throws RangeError for an unknown type. */
export function klPenalty(type: string, logp: number, refLogp: number, options: KlOptions = {}): KlTerm {
  if (type === 'r*k3') return ratioTimesK3(logp, refLogp, options);
  if (!type.endsWith('+')) return plain(type, logp, refLogp, options.valueClamp ?? Infinity);
  const { value } = plain(type.slice(0, -1), logp, refLogp, options.valueClamp ?? Infinity);
  return { value, grad: logp - refLogp };
}

function plain(type: string, logp: number, refLogp: number, valueClamp: number): KlTerm {
  const d = logp - refLogp;
  switch (ALIASES[type] ?? type) {
    case 'k1':
      return { value: d, grad: 1 };
    case 'abs':
      return { value: Math.abs(d), grad: Math.sign(d) };
    case 'k2':
      return { value: 0.5 * d * d, grad: d };
    case 'k3':
      return Number.isFinite(valueClamp) ? clampedK3(d, valueClamp) : k3(d);
    default:
      throw new RangeError(`Unknown KL type "${type}"; known: ${KL_TYPES.join(', ')}.`);
  }
}

function k3(d: number): KlTerm {
  const x = -d;
  if (x <= EXP_LIMIT) return { value: Math.expm1(x) - x, grad: -Math.expm1(x) };
  const slope = Math.expm1(EXP_LIMIT);
  return { value: slope - EXP_LIMIT + slope * (x - EXP_LIMIT), grad: -slope };
}

/** verl's k3: exponent clamped to +-20, value to +-valueClamp; no gradient beyond either. */
function clampedK3(d: number, valueClamp: number): KlTerm {
  const x = Math.min(Math.max(-d, -EXP_LIMIT), EXP_LIMIT);
  const value = Math.exp(x) - x - 1;
  if (value > valueClamp) return { value: valueClamp, grad: 0 };
  return { value, grad: Math.abs(d) > EXP_LIMIT ? 0 : -Math.expm1(x) };
}

function ratioTimesK3(logp: number, refLogp: number, options: KlOptions): KlTerm {
  if (options.oldLogp === undefined) throw new RangeError('KL type "r*k3" needs the sampling log-prob (oldLogp).');
  const { value, grad } = plain('k3', logp, refLogp, options.valueClamp ?? Infinity);
  const logRatio = logp - options.oldLogp;
  const ratio = Math.exp(Math.min(Math.max(logRatio, -EXP_LIMIT), EXP_LIMIT));
  return { value: ratio * value, grad: ratio * (grad + (Math.abs(logRatio) <= EXP_LIMIT ? value : 0)) };
}

/** State of verl's algorithm.kl_ctrl: the coefficient of the KL in the reward. */
interface KlController {
  type: 'fixed' | 'adaptive';
  /** Current coefficient. */
  klCoef: number;
  /** Only if adaptive: target KL in nats per token. */
  targetKl: number;
  /** Only if adaptive: number of samples over which a persistent 20% error changes the coefficient by 20%. */
  horizon: number;
}

/** Returns the state after a step with mean KL `currentKl` over `samples` samples (arXiv:1909.08593). */
export function updateKlController(controller: KlController, currentKl: number, samples: number): KlController {
  if (controller.type === 'fixed') return controller;
  if (!(controller.horizon > 0)) throw new RangeError(`klCtrl.horizon is ${controller.horizon}. It must be above 0.`);
  const error = Math.min(Math.max(currentKl / controller.targetKl - 1, -0.2), 0.2);
  return { ...controller, klCoef: controller.klCoef * (1 + (error * samples) / controller.horizon) };
}
