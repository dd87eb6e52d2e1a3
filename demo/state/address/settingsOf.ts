/** Converts a run's settings to parameters of an address: the differences between its config and its recipe. */

import { parseTrainConfig } from '../../../src/extensions/yaml/index.ts';
import { valueAt } from '../../../src/grpo/config/tree.ts';
import type { TrainConfig } from '../../../src/grpo/config/types.ts';
import { DEFAULT_RECIPE } from '../recipes.ts';

/** Config keys that have their own address parameter. Any other key is written as `set=key=value`. */
const NAMES: Readonly<Record<string, string>> = {
  'algorithm.name': 'algorithm',
  'actor.policyLoss.lossMode': 'loss',
  'actor.optim.lr': 'lr',
  'trainer.totalTrainingSteps': 'steps',
  'rollout.n': 'n',
  seed: 'seed',
  'task.name': 'task',
  'task.module': 'task',
};

/** Keys that also set other keys, which an address can then omit. */
const BRING_OTHERS = ['algorithm.name', 'actor.policyLoss.lossMode'];

/** Keys that have no effect in a page. */
const NOT_SHARED = [
  ...['name', 'trainer.defaultLocalDir', 'trainer.logRollouts', 'trainer.logger', 'trainer.resumeMode'],
  'model.lowerToFit', // follows from the keys that an address has
];

/** Returns the address parameters for a config. @param recipe text of configs/<name>.yaml */
export function settingsOf(config: TrainConfig, name: string, recipe: string): URLSearchParams {
  const parsed = (overrides: string[]) => parseTrainConfig(recipe, { source: name, overrides, note: () => {} });
  const bringers: string[] = [];
  let withBrought = parsed([]);
  for (const key of BRING_OTHERS) {
    if (!differs(config, withBrought, key)) continue;
    bringers.push(key);
    withBrought = orElse(() => parsed(bringers.map((bringer) => override(config, bringer))), withBrought);
  }
  const keys = leaves(config).filter(
    (key) => !NOT_SHARED.includes(key) && (bringers.includes(key) || differs(config, withBrought, key)),
  );
  // A task module (`task.module`) replaces the recipe's task, so the address need not name the task.
  const own = keys.filter((key) => key !== 'task.name' || config.task.module === undefined);
  const named = Object.keys(NAMES).filter((key) => own.includes(key));
  const others = own.filter((key) => !(key in NAMES));
  return new URLSearchParams([
    ...(name === DEFAULT_RECIPE ? [] : [['config', name]]),
    ...named.map((key) => [NAMES[key], textOf(valueAt(config, key))]),
    ...others.map((key) => ['set', override(config, key)]),
  ]);
}

const override = (config: TrainConfig, key: string) => `${key}=${asYaml(valueAt(config, key))}`;

const textOf = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

/** Returns words unchanged, and anything that YAML could read differently as JSON. */
const asYaml = (value: unknown): string =>
  typeof value === 'string' && /^[a-z][\w./-]*$/i.test(value) && !/^(true|false|null|y|n|yes|no|on|off)$/i.test(value)
    ? value
    : JSON.stringify(value);

const differs = (a: TrainConfig, b: TrainConfig, key: string): boolean =>
  JSON.stringify(valueAt(a, key)) !== JSON.stringify(valueAt(b, key));

/** Returns the dotted keys of all values; a list counts as a value. */
function leaves(tree: object, before = ''): string[] {
  return Object.entries(tree).flatMap(([name, value]: [string, unknown]) => {
    const isPart = typeof value === 'object' && value !== null && !Array.isArray(value);
    if (isPart) return leaves(value, `${before}${name}.`);
    return value === undefined ? [] : [before + name];
  });
}

function orElse<T>(make: () => T, otherwise: T): T {
  try {
    return make();
  } catch {
    return otherwise;
  }
}
