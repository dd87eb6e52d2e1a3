/**
 * Advantages: how much better a sample (or one of its tokens) did than expected, without a value network. Each
 * estimator is one function in this folder: on outcomes, on tokens or on turns.
 */

import { blame, InputError, shownValue, UserCodeError } from '../../errors.ts';
import { shareEntries } from '../../shared.ts';
import {
  gpg,
  grpo,
  grpoPassk,
  type GroupId,
  maxRl,
  opo,
  rae,
  rloo,
  type RoleBaselines,
  type ScaleRewards,
} from './outcome.ts';
import {
  broadcast,
  gdpo,
  maskMissing,
  outcomeRewards,
  reinforcePlusPlus,
  reinforcePlusPlusBaseline,
  remax,
} from './token.ts';
import type { Sample } from '../update/batch.ts';
import { broadcastTurns, turnLeaveOneOut } from './turns.ts';

export * from './outcome.ts';
export * from './token.ts';
export * from './turns.ts';

/** Inputs of an estimator for one step: N samples, in the order of their groups. */
export interface AdvantageInputs {
  /** [N] outcome of each sample; NaN = missing. */
  rewards: ArrayLike<number>;
  /** [N] group of each sample; the samples of one prompt share it. */
  groups: ArrayLike<GroupId>;
  /** Loss masks, one array per sample: 1 = trained token. */
  masks: readonly ArrayLike<number>[];
  /**
   * One array per sample: 1 = sampled by the policy, including tokens that rollout correction rejected. Default:
   * `masks`.
   */
  sampled?: readonly ArrayLike<number>[];
  /**
   * For reinforce_plus_plus and remax: one array per sample, the reward of each token. Default: the outcome on the last
   * sampled token.
   */
  tokenRewards?: readonly Float64Array[];
  /** For gdpo: [K][N] rewards of K reward functions, not yet combined. */
  components?: readonly ArrayLike<number>[];
  /** For remax: [N] reward of the greedy answer to each sample's prompt. */
  baselines?: ArrayLike<number>;
  /** For turn_loo: one array per sample, the reward of each turn. */
  turnRewards?: readonly ArrayLike<number>[];
  /** For rae: [N] role of each sample. Default: all samples have the same role. */
  roles?: readonly string[];
  /** For rae: running mean reward of each role before this step. Default: 0 for each role. */
  roleBaselines?: RoleBaselines | undefined;
}

/** Settings of the estimators. */
export interface AdvantageOptions {
  /** For grpo, gdpo and grpo_passk: divisor of the advantages; see ScaleRewards. Default: 'group'. */
  scaleRewards?: ScaleRewards;
  /** For reinforce_plus_plus and turn_loo: discount per token or turn. Default: 1. */
  gamma?: number;
  /** For rae: decay of each role's running mean per sample. Default: 0.95. */
  raeDecay?: number;
  /** For gdpo: [K] weight of each reward. */
  rewardWeights?: readonly number[];
}

type Estimator = (
  inputs: AdvantageInputs,
  options: AdvantageOptions & { scaleRewards: ScaleRewards },
) => Float64Array[];

/**
 * Estimators by their name in `algorithm.advEstimator`. Each returns advantages for every token of a step's samples.
 */
export const ADVANTAGE_ESTIMATORS = {
  grpo: ({ rewards, groups, masks }, { scaleRewards }) => broadcast(grpo(rewards, groups, scaleRewards), masks),
  rloo: ({ rewards, groups, masks }) => broadcast(rloo(rewards, groups), masks),
  opo: ({ rewards, groups, masks }) => broadcast(opo(rewards, groups, masks.map(trainedTokens)), masks),
  reinforce_plus_plus: (
    { rewards, masks, sampled = masks, tokenRewards = outcomeRewards(rewards, sampled) },
    { gamma },
  ) => reinforcePlusPlus(tokenRewards, maskMissing(rewards, masks), gamma, sampled),
  reinforce_plus_plus_baseline: ({ rewards, groups, masks }) => reinforcePlusPlusBaseline(rewards, groups, masks),
  remax: ({ rewards, masks, sampled = masks, baselines, tokenRewards = outcomeRewards(rewards, sampled) }) => {
    const known = need(baselines, 'remax', 'baselines');
    const advantages = remax(tokenRewards, maskMissing(rewards, sampled), known);
    return advantages.map((values, s) => values.map((a, t) => (masks[s][t] === 0 ? 0 : a)));
  },
  grpo_passk: ({ rewards, groups, masks }, { scaleRewards }) =>
    broadcast(grpoPassk(rewards, groups, scaleRewards), masks),
  gpg: ({ rewards, groups, masks }) => broadcast(gpg(rewards, groups), masks),
  gdpo: ({ components, groups, masks }, { rewardWeights, scaleRewards }) =>
    gdpo(need(components, 'gdpo', 'components'), groups, masks, rewardWeights, scaleRewards),
  max_rl: ({ rewards, groups, masks }) => broadcast(maxRl(rewards, groups), masks),
  rae: ({ rewards, masks, roles, roleBaselines }, { raeDecay }) =>
    broadcast(rae(rewards, roles, roleBaselines, raeDecay).advantages, masks),
  turn_loo: ({ turnRewards, groups, masks, sampled }, { gamma }) =>
    broadcastTurns(turnLeaveOneOut(need(turnRewards, 'turn_loo', 'turnRewards'), groups, gamma), masks, sampled),
} satisfies Record<string, Estimator>;

/**
 * A custom estimator. Returns one array per sample, as long as its response; values where the mask is 0 are ignored.
 */
export type CustomAdvantage = (inputs: AdvantageInputs, samples: readonly Sample[]) => ArrayLike<number>[];

/**
 * Returns the advantages of a custom estimator. Throws UserCodeError if it throws, or does not return one number per
 * token.
 */
export function ownAdvantages(
  estimator: CustomAdvantage,
  inputs: AdvantageInputs,
  samples: readonly Sample[],
): ArrayLike<number>[] {
  const { masks } = inputs;
  const expected = `Return one array of numbers for each of the ${masks.length} samples, as long as its response`;
  const wrong = (what: string) =>
    new UserCodeError('advantage returned', `The advantage estimator returned ${what}. ${expected}.`);
  try {
    const given: unknown = estimator(inputs, samples);
    if (!Array.isArray(given)) throw wrong('no list of arrays');
    if (given.length !== masks.length) throw wrong(`${given.length} arrays`);
    given.forEach((values: ArrayLike<unknown> | null | undefined, s) => {
      const tokens = masks[s].length;
      if (values?.length !== tokens)
        throw wrong(`${values?.length ?? 'no'} values for the ${tokens} tokens of sample ${s}`);
      const bad = Array.from(masks[s]).findIndex((m, t) => m !== 0 && typeof values[t] !== 'number');
      if (bad >= 0) throw wrong(`no number for token ${bad} of sample ${s}`);
    });
    return given as ArrayLike<number>[];
  } catch (error) {
    throw blame('advantage', 'The advantage estimator', error, expected);
  }
}

const own: Record<string, CustomAdvantage> = {};
const share = shareEntries<CustomAdvantage>('advantage', (name, advantage) => (own[name] = advantage));

/** Returns the custom estimator registered under a name; undefined if the name is not registered. */
export const ownAdvantage = (name: string): CustomAdvantage | undefined =>
  Object.hasOwn(own, name) ? own[name] : undefined;

/** Returns the names that `algorithm.advEstimator` accepts. */
export const advantageNames = (): AdvantageEstimator[] =>
  [...Object.keys(ADVANTAGE_ESTIMATORS), ...Object.keys(own)] as AdvantageEstimator[];

/** Registers a custom estimator; see `registerAdvantage`. Throws InputError if the name is taken or not valid. */
export function addAdvantage(name: string, advantage: CustomAdvantage): void {
  if (!/^[A-Za-z]\w*$/.test(name))
    throw new InputError(`An advantage cannot be called "${name}". Use letters, digits and _, starting with a letter.`);
  if (Object.hasOwn(ADVANTAGE_ESTIMATORS, name))
    throw new InputError(`Advantage "${name}" is built in. Register yours under another name.`);
  if (typeof advantage !== 'function')
    throw new InputError(
      `Advantage "${name}" is ${shownValue(advantage)}, not a function. Register (inputs, samples) => [...], one array per sample.`,
    );
  share(name, advantage);
}

export type AdvantageEstimator = keyof typeof ADVANTAGE_ESTIMATORS;

/**
 * Returns the advantage of every token of a step's samples, 0 where the mask is 0. The trainer calls only this
 * function.
 */
export function computeAdvantages(
  estimator: AdvantageEstimator,
  inputs: AdvantageInputs,
  options: AdvantageOptions = {},
): Float64Array[] {
  if (!Object.hasOwn(ADVANTAGE_ESTIMATORS, estimator)) {
    const known = Object.keys(ADVANTAGE_ESTIMATORS).join(', ');
    throw new RangeError(`Unknown advEstimator "${String(estimator)}"; known: ${known}.`);
  }
  return ADVANTAGE_ESTIMATORS[estimator](inputs, { scaleRewards: 'group', ...options });
}

const trainedTokens = (mask: ArrayLike<number>): number => Array.from(mask).reduce((a, b) => a + b, 0);

function need<T>(value: T | undefined, estimator: string, name: string): T {
  if (value === undefined)
    throw new RangeError(`advEstimator "${estimator}" needs ${name}, which this task does not provide.`);
  return value;
}
