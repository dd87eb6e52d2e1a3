/** Resolved config of a training run: the user's settings, with the recipe's settings filled in. */

import type { VERL_DEFAULTS } from './recipes.ts';
import type { WrittenConfig } from './schema/index.ts';

type Written = Pick<WrittenConfig, 'actor' | 'algorithm'>;
type Filled<T, K extends keyof T> = Omit<T, K> & { [P in K]-?: Exclude<T[P], undefined> };

/** The declared keys of a type, without its index signature. */
type Named<T> = { [K in keyof T as string extends K ? never : number extends K ? never : K]: T[K] };

/** A config in which every key can be missing, at any depth. */
type PartialTree<T> = T extends readonly unknown[] | string | number | boolean
  ? T
  : { readonly [K in keyof T]?: PartialTree<T[K]> | undefined };

/** Type of a recipe: the settings of a published method. */
export type Recipe = PartialTree<Written>;

/** Resolved config of a run: the user's settings over the recipe, over verl's defaults. */
export interface TrainConfig extends Omit<WrittenConfig, keyof Written> {
  actor: Filled<
    Omit<Written['actor'], 'clipRatio' | 'policyLoss'>,
    Exclude<keyof typeof VERL_DEFAULTS.actor, 'policyLoss'> | 'useKlLoss'
  > & {
    /** Settings of the policy loss, including the numeric parameters of a registered loss by name. */
    policyLoss: Filled<Named<Written['actor']['policyLoss']>, 'lossMode'>;
  };
  algorithm: Filled<
    Omit<Written['algorithm'], 'normAdvByStdInGrpo'>,
    'advEstimator' | 'scaleRewards' | 'maskTruncated'
  >;
}
