/** Converts the settings of a policy loss to the engine's form. */

import type { PolicyLossSpec } from '../../model/engine.ts';
import type { TrainConfig } from '../config/types.ts';
import { correctionSettings, lossWeighsItself } from '../correction/settings.ts';
import { type PolicyLoss, policyLossOf } from '../losses/index.ts';
import { WEIGHT_LEVELS } from '../losses/reinforce.ts';
import { lossSpec } from '../losses/types.ts';

/** Returns the policy loss in the engine's form. @param userLoss a custom loss that replaces the configured one */
export function policyLossSpec(config: TrainConfig, userLoss?: PolicyLoss): PolicyLossSpec {
  const { lossMode, ...named } = config.actor.policyLoss;
  const { klLossCoef, klLossType, klClamp, entropyCoeff } = config.actor;
  const { rolloutIs, rolloutIsThreshold } = correctionSettings(config);
  const numbers = Object.entries<unknown>(named).filter(
    (entry): entry is [string, number] => typeof entry[1] === 'number',
  );
  const given = {
    ...Object.fromEntries(numbers),
    ...(lossWeighsItself(config) && {
      rolloutIs: WEIGHT_LEVELS.indexOf(rolloutIs),
      rolloutIsThreshold: Number(rolloutIsThreshold),
    }),
  };
  const spec = userLoss
    ? lossSpec(userLoss, userLoss.name ?? 'custom', config.actor, given)
    : lossSpec(policyLossOf(lossMode), lossMode, config.actor, given);
  return { ...spec, klLossCoef, klLossType, entropyCoeff, ...(klClamp !== undefined && { klClamp }) };
}
