/** Fields of the settings form, in their order. */

import { RECIPES } from '../../../src/grpo/config/recipes.ts';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import { POLICY_LOSSES } from '../../../src/grpo/losses/index.ts';

/** Names of settings fields, in the address and in the form. */
export type FieldName = 'steps' | 'n' | 'lr' | 'algorithm' | 'loss' | 'seed';

export interface Field {
  name: FieldName;
  /** Key of the config. */
  key: string;
  label: string;
  /** Explanation of the field: one line under "More settings". */
  meaning: string;
  /** Options of the field; undefined = the visitor types a number. */
  choices?: readonly string[];
}

export const FIRST: readonly Field[] = [
  { name: 'steps', key: 'trainer.totalTrainingSteps', label: 'Steps', meaning: 'Number of training steps.' },
  {
    name: 'n',
    key: 'rollout.n',
    label: 'Tries per problem',
    meaning: 'Group size: tries of one problem compared with each other.',
  },
  { name: 'lr', key: 'actor.optim.lr', label: 'Learning rate', meaning: 'How far an update moves the weights.' },
];

export const MORE: readonly Field[] = [
  {
    name: 'algorithm',
    key: 'algorithm.name',
    label: 'Algorithm',
    meaning: 'How rewards are turned into advantages and a loss.',
    choices: Object.keys(RECIPES),
  },
  {
    name: 'loss',
    key: 'actor.policyLoss.lossMode',
    label: 'Loss',
    meaning: 'The policy loss.',
    choices: ['', ...Object.keys(POLICY_LOSSES)],
  },
  { name: 'seed', key: 'seed', label: 'Seed', meaning: 'Another seed samples other problems and tries.' },
];

export const FIELDS: readonly Field[] = [...FIRST, ...MORE];

/** The algorithms, grouped by what they change: the name that papers use, and one line about each. */
export const ALGORITHM_GROUPS: Readonly<
  Record<string, Readonly<Record<string, readonly [name: string, line: string]>>>
> = {
  'Compare the tries of a group': {
    grpo: ['GRPO', 'a try against the mean of its group'],
    dr_grpo: ['Dr. GRPO', 'GRPO without its division by spread and length'],
    dapo: ['DAPO', 'GRPO with a wider upper clip, groups with equal rewards are resampled'],
    rloo: ['RLOO', 'a try against the mean of the others'],
    opo: ['OPO', 'a baseline weighted by length'],
    gpg: ['GPG', 'plain policy gradient against the mean of the group'],
    max_rl: ['MaxRL', 'rare successes weigh more'],
    grpo_passk: ['GRPO pass@k', 'only the best try of a group counts'],
    gdpo: ['GDPO', 'several rewards, each compared on its own'],
  },
  'Compare with something else': {
    remax: ['ReMax', 'against the most likely try'],
    reinforce_plus_plus: ['REINFORCE++', 'against the mean of all tries of a step'],
    reinforce_plus_plus_baseline: ['REINFORCE++ with baseline', 'first against the group, then against the step'],
    rae: ['RAE (SPIRAL)', 'against a running mean, for self-play'],
    turn_loo: ['Leave-one-out per turn', 'turn by turn, for rewards of single turns'],
  },
  'Bound the update in another way': {
    gspo: ['GSPO', 'one ratio for a whole try'],
    gmpo: ['GMPO', 'the geometric mean of the ratios'],
    cispo: ['CISPO', 'the weight is clipped, no token is dropped'],
    sapo: ['SAPO', 'a soft gate instead of the clip'],
    luspo: ['LUSPO', 'GSPO without its length bias'],
    dppo_tv: ['DPPO-TV', 'drops tokens whose probability moved too far'],
    dppo_kl: ['DPPO-KL', 'the same, measured by KL'],
    clip_cov: ['Clip-Cov', 'no gradient for tokens that reduce entropy most'],
    kl_cov: ['KL-Cov', 'a KL term on only those tokens'],
    dro: ['DRO', 'regression to the reward'],
    vespo: ['VESPO', 'smooth weights for tries of older models'],
    reinforce: ['REINFORCE', 'no clip, one importance weight per token'],
  },
};

const NAMES: ReadonlyMap<string, string> = new Map(
  Object.values(ALGORITHM_GROUPS).flatMap((group) => Object.entries(group).map(([key, [name]]) => [key, name])),
);

/** Returns the name of an algorithm for people; a registered one has its key. */
export const algorithmName = (key: string): string => NAMES.get(key) ?? key;

/** Returns the algorithm of a config, with its loss if that is not the algorithm's own. */
export function methodOf({ algorithm, actor }: TrainConfig): string {
  const { lossMode } = actor.policyLoss;
  return `${algorithmName(algorithm.name)}${lossMode === ownLoss(algorithm.name) ? '' : ` with the loss ${lossMode}`}`;
}

/** Returns the loss that follows from an algorithm. */
export const ownLoss = (algorithm: string): string =>
  (RECIPES as Record<string, Recipe>)[algorithm]?.actor?.policyLoss?.lossMode ?? 'vanilla';

interface Recipe {
  actor?: { policyLoss?: { lossMode: string } };
}
