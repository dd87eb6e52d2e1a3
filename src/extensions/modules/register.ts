/**
 * Registers custom losses, advantages and recipes by name. From then on a config can use these names like the built-in
 * ones.
 */

import { ADVANTAGE_ESTIMATORS, addAdvantage, type CustomAdvantage } from '../../grpo/advantages/index.ts';
import { addPolicyLoss } from '../../grpo/losses/index.ts';
import type { CustomLoss, PolicyLoss } from '../../grpo/losses/types.ts';
import { InputError } from '../../errors.ts';
import { shareEntries } from '../../shared.ts';
import { RECIPES } from '../../grpo/config/recipes.ts';
import type { Recipe } from '../../grpo/config/types.ts';

const recipes: Record<string, Recipe> = RECIPES;
const registered = new Set<string>();
const share = shareEntries<Recipe>('recipe', (name, recipe) => {
  registered.add(name);
  recipes[name] = recipe;
});

/**
 * Registers a loss for `actor.policyLoss.lossMode: <name>`, and for `algorithm.name: <name>`, so that `compare` can
 * name it. Its numeric parameters (`numbers`) become keys of `actor.policyLoss`. A later registration of the same name
 * replaces it. Throws InputError for the name of a built-in loss, and if `loss` is neither a row nor a function, or
 * an async one.
 * @param loss a row (the loss of one token), or a function of a mini-batch, which runs on the controller's thread
 */
export function registerPolicyLoss(name: string, loss: PolicyLoss | CustomLoss): void {
  addPolicyLoss(name, loss);
  if (!Object.hasOwn(recipes, name)) registerRecipe(name, { actor: { policyLoss: { lossMode: name } } });
}

/**
 * Registers an estimator for `algorithm.advEstimator: <name>`. `advantage` receives the same inputs as the built-in
 * estimators, and the step's samples. Throws InputError for the name of a built-in estimator.
 */
export function registerAdvantage(name: string, advantage: CustomAdvantage): void {
  addAdvantage(name, advantage);
  const advEstimator = name as keyof typeof ADVANTAGE_ESTIMATORS;
  if (!Object.hasOwn(recipes, name)) registerRecipe(name, { algorithm: { advEstimator } });
}

/**
 * Registers settings for `algorithm.name: <name>`. They win over verl's defaults; the config's own keys win over them.
 */
export function registerRecipe(name: string, recipe: Recipe): void {
  if (Object.hasOwn(recipes, name) && !registered.has(name))
    throw new InputError(`algorithm.name "${name}" is built in. Register yours under another name.`);
  share(name, recipe);
}
