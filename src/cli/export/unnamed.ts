/** Settings that a peer has no name for: found, so that none is dropped in silence. */

import { RECIPES, VERL_DEFAULTS } from '../../grpo/config/recipes.ts';
import { keyDocs } from '../../grpo/config/keys.ts';
import { TRAIN_SCHEMA } from '../../grpo/config/schema/index.ts';
import { leaves, show, valueAt } from '../../grpo/config/tree.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';

/** How a run is made, not what it computes. */
const OF_THIS_PROGRAM =
  /^(name|engine|algorithm\.name|model\.|task\.|trainer\.(?!ref)|asyncTraining\.|rollout\.(speculative|preemption|asyncScheduling|valKwargs|agent)|data\.val)/;

/**
 * Keys, with their values, that were set to something but what they are by default and that are neither carried nor spoken of in
 * `said`. Numbers of losses are left to the caller, which knows which loss reads them.
 */
export function unnamed(config: TrainConfig, isCarried: (key: string) => boolean, said: readonly string[]): string[] {
  const byDefault = new Map([
    ...keyDocs(TRAIN_SCHEMA).map((doc) => [doc.path, doc.default] as const),
    ...leaves(VERL_DEFAULTS),
    ...leaves(RECIPES[config.algorithm.name as keyof typeof RECIPES] ?? {}),
  ]);
  return [...byDefault.keys()].flatMap((key) => {
    const value = valueAt(config, key);
    const isSet = value !== undefined && JSON.stringify(value) !== JSON.stringify(byDefault.get(key));
    const isKnown = OF_THIS_PROGRAM.test(key) || key.startsWith('actor.policyLoss.') || isCarried(key);
    return isSet && !isKnown && !said.some((sentence) => sentence.startsWith(key)) ? [`${key} ${show(value)}`] : [];
  });
}
