/** Fields of the settings form, in their order. */

import { RECIPES } from '../../../src/grpo/config/recipes.ts';
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

/** The algorithms, grouped by what they change, with one line about each. */
export const ALGORITHM_GROUPS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'Compare the tries of a group': {
    grpo: 'a try against the mean of its group',
    dr_grpo: 'GRPO without its division by spread and length',
    dapo: 'GRPO with a wider upper clip, groups with equal rewards are resampled',
    rloo: 'a try against the mean of the others',
    opo: 'a baseline weighted by length',
    gpg: 'plain policy gradient against the mean of the group',
    max_rl: 'rare successes weigh more',
    grpo_passk: 'only the best try of a group counts',
    gdpo: 'several rewards, each compared on its own',
  },
  'Compare with something else': {
    remax: 'against the most likely try',
    reinforce_plus_plus: 'against the mean of all tries of a step',
    reinforce_plus_plus_baseline: 'first against the group, then against the step',
    rae: 'against a running mean, for self-play',
    turn_loo: 'turn by turn, for rewards of single turns',
  },
  'Bound the update in another way': {
    gspo: 'one ratio for a whole try',
    gmpo: 'the geometric mean of the ratios',
    cispo: 'the weight is clipped, no token is dropped',
    sapo: 'a soft gate instead of the clip',
    luspo: 'GSPO without its length bias',
    dppo_tv: 'drops tokens whose probability moved too far',
    dppo_kl: 'the same, measured by KL',
    clip_cov: 'no gradient for tokens that reduce entropy most',
    kl_cov: 'a KL term on only those tokens',
    dro: 'regression to the reward',
    vespo: 'smooth weights for tries of older models',
    reinforce: 'no clip, one importance weight per token',
  },
};
