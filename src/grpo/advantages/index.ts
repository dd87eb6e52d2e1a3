/**
 * Advantages: how much better a sample (or one of its tokens) did than expected, without a value network. One estimator a
 * function, in `advantages/`: of outcomes, of tokens, of turns.
 */

import { gpg, grpo, grpoPassk, opo, rloo, type GroupId, type ScaleRewards } from './outcome.ts';
import {
  broadcast,
  gdpo,
  maskMissing,
  outcomeRewards,
  reinforcePlusPlus,
  reinforcePlusPlusBaseline,
  remax,
} from './token.ts';
import { broadcastTurns, turnLeaveOneOut } from './turns.ts';

export * from './outcome.ts';
export * from './token.ts';
export * from './turns.ts';

export type AdvantageEstimator =
  | 'grpo'
  | 'rloo'
  | 'opo'
  | 'reinforce_plus_plus'
  | 'reinforce_plus_plus_baseline'
  | 'remax'
  | 'grpo_passk'
  | 'gpg'
  | 'gdpo'
  | 'turn_loo';

export interface AdvantageInputs {
  /** [N] outcome of each sample; NaN = missing. */
  rewards: ArrayLike<number>;
  /** [N] which prompt. */
  groups: ArrayLike<GroupId>;
  /** One array a sample: 1 = trained token. */
  masks: readonly ArrayLike<number>[];
  /** gdpo: [K][N] single rewards. */
  components?: readonly ArrayLike<number>[];
  /** remax: [N] reward of the greedy answer. */
  baselines?: ArrayLike<number>;
  /** turn_loo: one array a sample, the reward of each turn. */
  turnRewards?: readonly ArrayLike<number>[];
}

export interface AdvantageOptions {
  /** grpo, gdpo, grpo_passk: see ScaleRewards. Default 'group'. */
  scaleRewards?: ScaleRewards;
  /** reinforce_plus_plus, turn_loo: discount per token or turn. Default 1. */
  gamma?: number;
  /** gdpo: [K]. */
  rewardWeights?: readonly number[];
}

/** Advantages of every token of a step's samples, 0 where the mask is 0: the controller's one entry point. */
export function computeAdvantages(
  estimator: AdvantageEstimator,
  inputs: AdvantageInputs,
  options: AdvantageOptions = {},
): Float64Array[] {
  const { rewards, groups, masks } = inputs;
  const scale = options.scaleRewards ?? 'group';
  const lengths = masks.map((mask) => Array.from(mask).reduce((a, b) => a + b, 0));
  switch (estimator) {
    case 'grpo':
      return broadcast(grpo(rewards, groups, scale), masks);
    case 'rloo':
      return broadcast(rloo(rewards, groups), masks);
    case 'opo':
      return broadcast(opo(rewards, groups, lengths), masks);
    case 'grpo_passk':
      return broadcast(grpoPassk(rewards, groups, scale !== 'none'), masks);
    case 'gpg':
      return broadcast(gpg(rewards, groups), masks);
    case 'reinforce_plus_plus_baseline':
      return reinforcePlusPlusBaseline(rewards, groups, masks);
    case 'reinforce_plus_plus':
      return reinforcePlusPlus(outcomeRewards(rewards, masks), maskMissing(rewards, masks), options.gamma);
    case 'gdpo':
      return gdpo(need(inputs.components, 'gdpo', 'components'), groups, masks, options.rewardWeights, scale);
    case 'remax': {
      const baselines = need(inputs.baselines, 'remax', 'baselines');
      const advantages = remax(outcomeRewards(rewards, masks), maskMissing(rewards, masks), baselines);
      return advantages.map((values, s) => values.map((a, t) => (masks[s][t] === 0 ? 0 : a)));
    }
    case 'turn_loo':
      return broadcastTurns(
        turnLeaveOneOut(need(inputs.turnRewards, 'turn_loo', 'turnRewards'), groups, options.gamma),
        masks,
      );
    default:
      throw new RangeError(`Unknown advEstimator "${String(estimator)}"; see AdvantageEstimator for the known ones.`);
  }
}

function need<T>(value: T | undefined, estimator: string, name: string): T {
  if (value === undefined)
    throw new RangeError(`advEstimator "${estimator}" needs ${name}, which this task does not give.`);
  return value;
}
