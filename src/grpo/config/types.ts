/** The config of a training run as everything below reads it: what a user wrote, with the recipe's settings filled in. */

import type { WrittenConfig } from './schema.ts';

type RecipeKeys =
  | 'lossMode'
  | 'lossAggMode'
  | 'clipRatioLow'
  | 'clipRatioHigh'
  | 'clipRatioC'
  | 'entropyCoeff'
  | 'klLossCoef'
  | 'klLossType';
type Filled<T, K extends keyof T> = Omit<T, K> & { [P in K]-?: Exclude<T[P], undefined> };

/** A resolved run. `algorithm.settings` is what the recipe and the overrides came to, the loss's own numbers included. */
export interface TrainConfig extends Omit<WrittenConfig, 'actor' | 'algorithm'> {
  actor: Filled<WrittenConfig['actor'], RecipeKeys | 'useKlLoss'>;
  algorithm: Filled<WrittenConfig['algorithm'], 'advEstimator' | 'scaleRewards' | 'maskTruncated'>;
}
