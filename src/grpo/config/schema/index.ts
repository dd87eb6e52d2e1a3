/**
 * Schema of a training run's YAML. Keys have verl's names in camelCase. If a default differs from verl's, the key's
 * reason says so. Keys marked "from algorithm.name" have no default here: their values come from the recipe, see
 * `recipes.ts`.
 */

import * as v from 'valibot';
import { choice, count, part, requiredText } from '../keys.ts';
import { actor } from './actor.ts';
import { algorithm } from './algorithm.ts';
import { asyncTraining } from './asyncTraining.ts';
import { data, task } from './data.ts';
import { model } from './model.ts';
import { reward } from './reward.ts';
import { rollout } from './rollout.ts';
import { trainer } from './trainer.ts';

export const TRAIN_SCHEMA = part({
  name: requiredText({
    why: 'Name of the run; letters, digits, ., _ and -.',
    verl: 'trainer.experiment_name',
    trl: 'run_name',
  }),
  engine: choice(
    'wgsl',
    ['wgsl', 'tfjs'],
    'wgsl = our own kernels. tfjs = gradients by autodiff: slower, for verification.',
  ),
  seed: count(1, '', {
    why: 'Seed of all random numbers. The same seed on the same adapter results in the same run.',
    min: 0,
    verl: 'data.seed',
    trl: 'seed',
  }),
  model,
  task: v.optional(task, {}),
  data: v.optional(data, {}),
  rollout: v.optional(rollout, {}),
  actor: v.optional(actor, {}),
  algorithm: v.optional(algorithm, {}),
  reward: v.optional(reward, {}),
  trainer: v.optional(trainer, {}),
  asyncTraining: v.optional(asyncTraining, {}),
});

/** Type of a config as a user writes it: keys that the recipe sets can be missing. */
export type WrittenConfig = v.InferOutput<typeof TRAIN_SCHEMA>;
