import { resolveTrainConfig } from '../src/grpo/config/resolve.ts';
import { policyLossSpec } from '../src/grpo/update/lossSpec.ts';
import { POLICY_LOSSES } from '../src/grpo/losses/index.ts';
import type { PolicyLossSpec } from '../src/model/engine.ts';

/** Names of all numeric settings that a policy loss declares for itself. */
const OWN = Object.values(POLICY_LOSSES).flatMap(({ numbers = {} }) => Object.keys(numbers));

/** Returns the policy loss of a recipe. `overrides` are keys of `actor`, of `actor.policyLoss`, or of rollout correction. */
export function recipeSpec(name: string, overrides: Record<string, number | string | undefined> = {}): PolicyLossSpec {
  const keys = Object.entries(overrides);
  const correction = Object.fromEntries(keys.filter(([key]) => key.startsWith('rollout')));
  const policyLoss = Object.fromEntries(keys.filter(([key]) => OWN.includes(key) && !(key in correction)));
  const actor = Object.fromEntries(keys.filter(([key]) => !(key in policyLoss) && !(key in correction)));
  const algorithm = { name, rolloutCorrection: correction };
  return policyLossSpec(
    resolveTrainConfig({ name: 'test', model: { path: 'none' }, actor: { ...actor, policyLoss }, algorithm }),
  );
}
