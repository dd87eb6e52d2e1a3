/**
 * Corrections of a mini-batch that need the policy as it is just before an update: rejection and importance weights in
 * bypass mode, off-policy sequence masking, the top-entropy mask, and the tokens of clip-cov and kl-cov. They need an
 * additional forward pass, so they run only if the config asks for one of them.
 */

import type { TrainConfig } from '../config/types.ts';
import { correctionSettings, type CorrectionSettings, lossWeighsItself } from './settings.ts';
import { policyLossOf } from '../losses/index.ts';
import type { Metrics } from '../metrics.ts';
import { offPolicySequenceMask, rolloutCorrection, type Samples, topEntropyMask } from './correct.ts';

type Settings = Pick<TrainConfig, 'actor' | 'algorithm'>;

/** Inputs of a mini-batch; one array per sample. */
interface CurrentPolicyInputs extends Omit<Samples, 'oldLogp'> {
  /** Log-prob under the current policy. */
  logp: readonly ArrayLike<number>[];
  /** Entropy under the current policy, in nats. */
  entropy: readonly ArrayLike<number>[];
  advantages: readonly ArrayLike<number>[];
}

export interface CurrentPolicyResult {
  /** Masks after rejection: tokens with mask 1 count in the aggregation. */
  masks: ArrayLike<number>[];
  /** Importance weights of bypass mode. Undefined if the loss computes them itself. */
  isWeights?: Float64Array[];
  /** 0 = the token has no policy gradient, although it still counts in the aggregation and in the KL. */
  keep: Float64Array[];
  /** 1 = the entropy bonus applies to the token. Default: to all tokens. */
  entropyKeep?: Float64Array[];
  /** rollout_corr/*, actor/opsm_kept, actor/top_entropy_kept. */
  metrics: Metrics;
}

/** True if an update must compute the policy's log-probs first. @param loss a custom loss, if the run has one */
export function needsCurrentPolicy(config: Settings, loss = policyLossOf(config.actor.policyLoss.lossMode)): boolean {
  const { offPolicyMaskThreshold } = correctionSettings(config);
  const selects = loss.select !== undefined;
  return correctsNow(config) || offPolicyMaskThreshold < Infinity || config.actor.topEntropyQuantile < 1 || selects;
}

/**
 * True in bypass mode: the "old" policy is then the sampler, so the correction must compare the sampler with the
 * current policy.
 */
function correctsNow(config: Settings): boolean {
  const { bypassMode, rolloutIs, rolloutRs } = correctionSettings(config);
  if (!bypassMode || lossWeighsItself(config)) return false;
  return rolloutRs !== '' || (rolloutIs !== 'none' && config.actor.policyLoss.lossMode === 'reinforce');
}

/**
 * Returns masks, weights and metrics of a mini-batch. PPO-style losses use only the rejection masks, because their
 * ratio already is the importance weight.
 */
export function correctByCurrentPolicy(config: Settings, inputs: CurrentPolicyInputs): CurrentPolicyResult {
  const { logp: oldLogp, rolloutLogp, masks } = inputs;
  const settings = correctionSettings(config);
  const corrected = correctsNow(config) ? rolloutCorrection(settings, { oldLogp, rolloutLogp, masks }) : undefined;
  const result: CurrentPolicyResult = {
    masks: corrected?.masks ?? [...masks],
    keep: masks.map((mask) => new Float64Array(mask.length).fill(1)),
    metrics: { ...corrected?.metrics },
  };
  if (corrected?.isWeights && config.actor.policyLoss.lossMode === 'reinforce') result.isWeights = corrected.isWeights;
  if (settings.offPolicyMaskThreshold < Infinity) maskOffPolicy(settings, inputs, result);
  if (config.actor.topEntropyQuantile < 1) {
    const top = topEntropyMask(inputs.entropy, result.masks, config.actor.topEntropyQuantile);
    multiply(result, top, 'actor/top_entropy_kept');
    result.entropyKeep = top;
  }
  return result;
}

function maskOffPolicy(settings: CorrectionSettings, inputs: CurrentPolicyInputs, result: CurrentPolicyResult): void {
  const { logp: oldLogp, rolloutLogp, masks, advantages } = inputs;
  const mean = advantages.map((values, s) => trainedMean(values, masks[s]));
  const kept = offPolicySequenceMask(mean, { oldLogp, rolloutLogp, masks }, settings.offPolicyMaskThreshold);
  multiply(result, kept, 'actor/opsm_kept');
}

/** Multiplies the masks by `kept`. The returned metric is the share of trained tokens that remains. */
function multiply(result: CurrentPolicyResult, kept: readonly ArrayLike<number>[], metric: string): void {
  let [trained, left] = [0, 0];
  result.masks.forEach((mask, s) => {
    for (let t = 0; t < mask.length; t++) {
      if (mask[t] === 0) continue;
      trained++;
      if (kept[s][t] !== 0) left++;
      else result.keep[s][t] = 0;
    }
  });
  if (trained > 0) result.metrics[metric] = left / trained;
}

function trainedMean(values: ArrayLike<number>, mask: ArrayLike<number>): number {
  let [sum, count] = [0, 0];
  for (let t = 0; t < mask.length; t++) if (mask[t] !== 0) [sum, count] = [sum + values[t], count + 1];
  return count > 0 ? sum / count : 0;
}
