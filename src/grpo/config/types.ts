/** The config of a training run as everything below reads it: what a user wrote, with the recipe's settings filled in. */

import type { VERL_DEFAULTS } from './recipes.ts';
import type { WrittenConfig } from './schema/index.ts';

type Written = Pick<WrittenConfig, 'actor' | 'algorithm'>;
type Filled<T, K extends keyof T> = Omit<T, K> & { [P in K]-?: Exclude<T[P], undefined> };

/** The keys that a type names, without the index signature of those that it does not. */
type Named<T> = { [K in keyof T as string extends K ? never : number extends K ? never : K]: T[K] };

/** A part of a config, to any depth. */
type PartialTree<T> = T extends readonly unknown[] | string | number | boolean
  ? T
  : { readonly [K in keyof T]?: PartialTree<T[K]> | undefined };

/** The settings of a published method. */
export type Recipe = PartialTree<Written>;

/** A resolved run: what the user wrote, over the recipe, over verl's defaults. */
export interface TrainConfig extends Omit<WrittenConfig, keyof Written> {
  actor: Filled<
    Omit<Written['actor'], 'clipRatio' | 'policyLoss'>,
    Exclude<keyof typeof VERL_DEFAULTS.actor, 'policyLoss'> | 'useKlLoss'
  > & {
    /** With the numbers of a loss that was registered, by their names. */
    policyLoss: Filled<Named<Written['actor']['policyLoss']>, 'lossMode'>;
  };
  algorithm: Filled<
    Omit<Written['algorithm'], 'normAdvByStdInGrpo'>,
    'advEstimator' | 'scaleRewards' | 'maskTruncated'
  >;
}
