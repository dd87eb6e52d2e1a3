/** Losses, advantages and recipes of a user's own, by name: from then on a config may name them, as it names those that are shipped. */

import { ADVANTAGE_ESTIMATORS, addAdvantage, type CustomAdvantage } from '../advantages/index.ts';
import { addPolicyLoss } from '../losses/index.ts';
import type { PolicyLoss } from '../losses/types.ts';
import { InputError } from '../../errors.ts';
import { RECIPES } from './recipes.ts';
import type { Recipe } from './types.ts';

const recipes: Record<string, Recipe> = RECIPES;
const registered = new Set<string>();

/**
 * Makes `actor.policyLoss.lossMode: <name>` mean this loss; `algorithm.name: <name>` does too, so that `compare` can name it. Its numbers are
 * keys of `actor.policyLoss`. A later one of the same name replaces it. Throws InputError for the name of a shipped one.
 */
export function registerPolicyLoss(name: string, loss: PolicyLoss): void {
  addPolicyLoss(name, loss);
  if (!Object.hasOwn(recipes, name)) registerRecipe(name, { actor: { policyLoss: { lossMode: name } } });
}

/** The same for `algorithm.advEstimator: <name>`. `advantage` gets what the shipped ones get, and the step's samples. */
export function registerAdvantage(name: string, advantage: CustomAdvantage): void {
  addAdvantage(name, advantage);
  const advEstimator = name as keyof typeof ADVANTAGE_ESTIMATORS;
  if (!Object.hasOwn(recipes, name)) registerRecipe(name, { algorithm: { advEstimator } });
}

/** Makes `algorithm.name: <name>` mean these settings, over verl's defaults and under what a config says itself. */
export function registerRecipe(name: string, recipe: Recipe): void {
  if (Object.hasOwn(recipes, name) && !registered.has(name))
    throw new InputError(`algorithm.name "${name}" is built in. Register yours under another name.`);
  registered.add(name);
  recipes[name] = recipe;
}
