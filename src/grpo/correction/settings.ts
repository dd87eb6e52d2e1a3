/** Settings of `algorithm.rolloutCorrection`, with all defaults filled in. */

import type { TrainConfig } from '../config/types.ts';
import type { RolloutCorrection } from './correct.ts';

export interface CorrectionSettings extends RolloutCorrection {
  bypassMode: boolean;
  /** Threshold of off-policy sequence masking, in nats per token; Infinity = off. */
  offPolicyMaskThreshold: number;
}

/** Returns the settings with all defaults filled in. */
export function correctionSettings({ algorithm }: Pick<TrainConfig, 'algorithm'>): CorrectionSettings {
  const {
    rolloutIs = 'none',
    rolloutRs = '',
    offPolicyMaskThreshold = Infinity,
    ...rest
  } = algorithm.rolloutCorrection;
  const { rolloutIsThreshold = 2, rolloutRsThreshold = '', rolloutIsBatchNormalize } = rest;
  const bypassMode = rest.bypassMode ?? (rolloutIs === 'none' && rolloutRs === '');
  return {
    rolloutIs,
    rolloutIsThreshold,
    rolloutIsBatchNormalize,
    rolloutRs,
    rolloutRsThreshold,
    bypassMode,
    offPolicyMaskThreshold,
  };
}

/**
 * True if the loss computes its importance weights on the device: REINFORCE in bypass mode, with truncation and no
 * other correction.
 */
export function lossWeighsItself(config: Pick<TrainConfig, 'actor' | 'algorithm'>): boolean {
  const { bypassMode, rolloutIs, rolloutIsThreshold, rolloutIsBatchNormalize, rolloutRs } = correctionSettings(config);
  if (config.actor.policyLoss.lossMode !== 'reinforce' || !bypassMode || rolloutIs === 'none') return false;
  return typeof rolloutIsThreshold === 'number' && !rolloutIsBatchNormalize && rolloutRs === '';
}
