/**
 * Values that adapt from step to step in addition to the weights: the KL coefficient, the entropy bonus, the reference.
 */

import type { TensorMap } from '../../model/engine.ts';
import type { TrainConfig } from '../config/types.ts';
import { updateKlController } from '../losses/kl.ts';
import type { Metrics } from '../metrics.ts';
import { updateEntropy } from '../advantages/shaping.ts';
import type { TrainerEngine, TrainerState } from '../types.ts';

/** Updates the coefficient of the KL in the reward, if it is adaptive. */
export function adaptKl(
  { algorithm }: TrainConfig,
  state: Pick<TrainerState, 'klCoef'>,
  metrics: Metrics,
  samples: number,
): void {
  const { useKlInReward, klCtrl } = algorithm;
  if (!useKlInReward || klCtrl.type === 'fixed') return;
  const controller = { ...klCtrl, klCoef: metrics['actor/reward_kl_penalty_coeff'] };
  state.klCoef = updateKlController(controller, metrics['actor/reward_kl_penalty'], samples).klCoef;
}

/**
 * Weight of the entropy bonus in the next update. A bonus with a target applies only after an update has measured the
 * entropy.
 */
export function entropyCoeffOf({ actor }: TrainConfig, entropy: TrainerState['entropy']): number {
  if (actor.entropyTarget === undefined) return actor.entropyCoeff;
  return entropy?.acts ? entropy.coeff : 0;
}

/**
 * Returns the state of the entropy bonus after an update, if the bonus has a target. As in TRL, it changes at every
 * optimizer step. @param entropy nats, mean over the tokens to which the bonus applies
 */
export function adaptEntropy(
  { actor }: TrainConfig,
  before: TrainerState['entropy'],
  entropy: number,
): TrainerState['entropy'] {
  const { entropyCoeff, entropyTarget, entropyCoeffDelta, entropyCoeffMin, entropyCoeffMax } = actor;
  if (entropyTarget === undefined) return before;
  const now = before?.coeff ?? entropyCoeff;
  const rest = { entropyTarget, entropyCoeffDelta, entropyCoeffMin, entropyCoeffMax };
  const { controller } = updateEntropy({ entropyCoeff: now, ...rest }, entropy);
  return { coeff: controller.entropyCoeff, acts: entropy <= entropyTarget };
}

/** Every refUpdateFreq steps, sets reference = alpha * policy + (1 - alpha) * reference (TRL's sync_ref_model). */
export async function refreshReference(config: TrainConfig, engine: TrainerEngine, step: number): Promise<void> {
  const { refUpdateFreq, refMixupAlpha } = config.trainer;
  const { model, reference, judge } = engine;
  if (!reference || refUpdateFreq === 0 || step % refUpdateFreq !== 0) return;
  const policy = await model.exportWeights();
  const refreshed = refMixupAlpha === 1 ? policy : mixWeights(policy, await reference.exportWeights(), refMixupAlpha);
  await reference.importWeights(refreshed);
  await judge?.resetCache();
}

/** Returns alpha * a + (1 - alpha) * b, tensor by tensor. */
function mixWeights(a: TensorMap, b: TensorMap, alpha: number): TensorMap {
  const mix = (name: string, data: Float32Array) => {
    const other = b.get(name)!.data;
    return data.map((x, i) => alpha * x + (1 - alpha) * other[i]);
  };
  return new Map([...a].map(([name, { shape, data }]) => [name, { shape, data: mix(name, data) }]));
}
