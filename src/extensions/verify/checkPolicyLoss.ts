/** Checks a custom policy loss: its gradient against its value, and its WGSL against its TypeScript function `row` in float64. */

import { InputError } from '../../errors.ts';
import type { Gpu } from '../../gpu/device.ts';
import { preparePolicyLoss } from '../../gpu/ops/policy_loss.ts';
import { computePolicyLoss, directLoss, type PolicyLoss, selectTokens } from '../../grpo/losses/index.ts';
import { type CustomLoss, type CustomLossRows, lossSpec, NO_LOSS } from '../../grpo/losses/types.ts';
import type { PolicyLossSpec } from '../../model/engine.ts';
import { lossError } from './kernels.ts';

/** Options of `checkPolicyLoss`. */
export interface LossCheckOptions {
  /** Values of the loss's parameters, by name, if they differ from the defaults. */
  numbers?: Readonly<Record<string, number>>;
  /** Clip range of the ratio. Default: clipRatioLow 0.2, clipRatioHigh 0.28, clipRatioC 3. */
  clip?: { clipRatioLow: number; clipRatioHigh: number; clipRatioC: number };
  /** True if the loss treats the ratio as a constant weight (CISPO, REINFORCE). The slope is then measured at a constant ratio. */
  fixedRatio?: boolean;
  /** Device on which the WGSL is compared with `row`. The `engine` of createLocalEngine has one. */
  gpu?: Gpu;
}

/** Result of `checkPolicyLoss`. */
export interface LossCheck {
  /** Number of tokens that were checked. */
  tokens: number;
  /** Largest |gradient - slope| / max(1, |gradient|) of a token. The slope is the central difference of the loss. */
  slopeError: number;
  /**
   * Length of the difference between the gradients by WGSL and by `row`, relative to that by `row`. Only with a device, for a loss with
   * WGSL.
   */
  wgslError?: number;
}

const ADVANTAGES = [-1.7, -0.4, 0.6, 2.1];
/** Logarithms of ratios inside and outside every usual clip range, on both sides of 1. */
const LOG_RATIOS = [-2.3, -0.71, -0.24, -0.11, -0.0037, 0.00071, 0.052, 0.13, 0.31, 0.93, 1.9];
const STEP = 1e-5;
const [SLOPE_LIMIT, WGSL_LIMIT] = [1e-4, 1e-4];

/**
 * Compares the gradient of every token with the slope of the loss, for all combinations of LOG_RATIOS and ADVANTAGES; every fifth token is
 * excluded by the mask. With a device, also compares the WGSL with `row`. A loss that is a function must return its value as `loss`. Throws
 * InputError if the WGSL does not compile, or at the first token with a mismatch (the message has the token's log ratio, advantage,
 * gradient and slope).
 */
export async function checkPolicyLoss(
  loss: PolicyLoss | CustomLoss,
  options: LossCheckOptions = {},
): Promise<LossCheck> {
  const { numbers, clip = { clipRatioLow: 0.2, clipRatioHigh: 0.28, clipRatioC: 3 }, gpu } = options;
  const row = typeof loss === 'function' ? NO_LOSS : loss;
  const spec = lossSpec(row, row.name ?? 'custom', clip, numbers);
  const rows = gridRows();
  const ofBatch = typeof loss === 'function' ? directLoss(loss, 'custom') : loss.ofBatch;
  const evaluate = ofBatch ? (at: CustomLossRows) => ofFunction(ofBatch, at) : ofRow(spec, row, rows);
  const result = { tokens: rows.logProbs.length, slopeError: slopeError(spec.lossMode, evaluate, rows, options) };
  if (!gpu || row.wgsl === undefined) return result;
  await preparePolicyLoss(gpu, spec);
  let wgslError = 0;
  for (const drift of [0.001, 0.3, 2]) wgslError = Math.max(wgslError, await lossError(gpu, spec, drift, row));
  if (wgslError <= WGSL_LIMIT) return { ...result, wgslError };
  throw new InputError(
    `Policy loss "${spec.lossMode}": its WGSL and its row differ by ${wgslError.toExponential(1)} of the gradient's length; allowed: ${WGSL_LIMIT}.`,
  );
}

interface Evaluated {
  loss: number;
  grad: ArrayLike<number>;
}

function slopeError(
  name: string,
  evaluate: (rows: CustomLossRows) => Evaluated,
  rows: CustomLossRows,
  { fixedRatio }: LossCheckOptions,
): number {
  const { grad } = evaluate(rows);
  const shifted = (values: Float32Array, e: number, by: number) => values.map((x, i) => (i === e ? x + by : x));
  const at = (e: number, by: number) =>
    evaluate({
      ...rows,
      logProbs: shifted(rows.logProbs, e, by),
      ...(fixedRatio && { oldLogProbs: shifted(rows.oldLogProbs, e, by) }),
    }).loss;
  let worst = 0;
  rows.logProbs.forEach((logp, e) => {
    const slope = (at(e, STEP) - at(e, -STEP)) / (2 * STEP);
    const error = Math.abs(grad[e] - slope) / Math.max(1, Math.abs(grad[e]));
    if (!(error <= SLOPE_LIMIT))
      throw new InputError(
        `Policy loss "${name}": at log ratio ${(logp - rows.oldLogProbs[e]).toFixed(4)} and advantage ${rows.advantages[e]} the ` +
          `gradient is ${grad[e]}, but the value's slope is ${slope.toPrecision(6)}` +
          `${fixedRatio ? '' : '; where the ratio is a constant weight, say fixedRatio'}.`,
      );
    worst = Math.max(worst, error);
  });
  return worst;
}

/**
 * Returns a function that evaluates `row` in float64. If the loss selects tokens (clip-cov, kl-cov), it selects them once, from the rows
 * `start`, so that the selection is the same when the log-prob of a token is shifted for the slope.
 */
function ofRow(spec: PolicyLossSpec, loss: PolicyLoss, start: CustomLossRows) {
  const rowsOf = ({ logProbs: logp, oldLogProbs: oldLogp, ...rest }: CustomLossRows) => ({ ...rest, logp, oldLogp });
  const selected = selectTokens(spec, rowsOf(start), loss);
  return (rows: CustomLossRows): Evaluated =>
    computePolicyLoss(spec, { ...rowsOf(rows), ...(selected && { selected }) }, loss);
}

function ofFunction(loss: CustomLoss, rows: CustomLossRows): Evaluated {
  const { loss: value, dLogProbs: grad } = loss(rows);
  if (value === undefined)
    throw new InputError(
      'checkPolicyLoss needs the value of the loss. Return { loss, dLogProbs } from your loss function.',
    );
  return { loss: value, grad };
}

/** Returns test data: one sequence per advantage, with one token per ratio. The values are float64, so that slopes are accurate. */
function gridRows(): CustomLossRows {
  const T = LOG_RATIOS.length;
  const each = (of: (s: number, t: number) => number) =>
    Float64Array.from({ length: ADVANTAGES.length * T }, (_, e) =>
      of(Math.floor(e / T), e % T),
    ) as unknown as Float32Array;
  const mask = (s: number, t: number) => ((s + t) % 5 === 3 ? 0 : 1);
  const logp = (s: number, t: number) => -0.3 - ((s * 7 + t * 3) % 11) / 5;
  return {
    logProbs: each(logp),
    oldLogProbs: each((s, t) => logp(s, t) - LOG_RATIOS[t]),
    advantages: each((s) => ADVANTAGES[s]),
    entropy: each((s, t) => 1 + ((s + t) % 3) / 2),
    mask: each(mask),
    weights: each((s, t) => 0.5 * (s + 1) * mask(s, t)),
    klWeights: each((s, t) => 0.5 * (s + 1) * mask(s, t)),
    seqStart: Uint32Array.from({ length: ADVANTAGES.length + 1 }, (_, s) => s * T),
  };
}
