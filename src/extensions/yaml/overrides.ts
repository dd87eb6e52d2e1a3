/**
 * Applies `key=value` overrides to a config file, for the command line, `compare` and the page. An override of
 * `algorithm.name` also applies its recipe: the file's values of the keys that recipes decide are dropped. Other
 * overrides win over the recipe.
 */

import { ConfigError, InputError } from '../../errors.ts';
import { isDecidedByRecipe, SHORTHANDS } from '../../grpo/config/recipeNotes.ts';
import { copyOf, deleteAt, leaves, setAt, show, type Tree } from '../../grpo/config/tree.ts';
import { readYaml } from './yaml.ts';

export interface Override {
  /** The override as written, such as `actor.optim.lr=1e-4`. */
  text: string;
  path: string;
  value: unknown;
}

/** Parses an override. Throws InputError if the text is not `key=value`. */
export function readOverride(text: string): Override {
  const [, path, yaml] = /^([\w.]+)=(.*)$/s.exec(text) ?? [];
  if (path === undefined)
    throw new InputError(`Cannot read the override ${show(text)}. Write it as actor.optim.lr=1e-4.`);
  return { text, path, value: readYaml(yaml, `The value of the override ${show(text)}`) };
}

/**
 * Returns the file with the overrides applied, and the file's keys that were dropped because an override chose another
 * recipe. The schema checks later if the keys exist.
 */
export function layOverrides(file: Tree, overrides: readonly Override[]): { tree: Tree; gaveWay: string[] } {
  const tree = copyOf(file);
  const gaveWay: string[] = [];
  if (overrides.some(({ path }) => path === 'algorithm.name'))
    for (const [path, value] of leaves(file))
      if (isDecidedByRecipe(path)) {
        deleteAt(tree, path);
        if (!overrides.some((override) => override.path === path)) gaveWay.push(`${path} ${show(value)}`);
      }
  // If an override is a shorthand, the keys that it sets also replace those of the file.
  for (const { key, sets } of SHORTHANDS)
    if (overrides.some(({ path }) => path === key)) for (const path of sets) deleteAt(tree, path);
  for (const { text, path, value } of overrides)
    if (!setAt(tree, path, value)) {
      const part = path.slice(0, path.lastIndexOf('.'));
      throw new InputError(`The override ${show(text)} sets a key inside "${part}", which is a value.`);
    }
  return { tree, gaveWay };
}

/**
 * Names the responsible override in an error about config keys: the last override that sets one of these keys, a part
 * of the config that contains one, or a value inside one.
 */
export function blameOverride(error: ConfigError, overrides: readonly Override[]): ConfigError {
  const isIn = (key: string, part: string) => key === part || key.startsWith(`${part}.`);
  const keyOf = ({ path }: Override) => error.keys.find((key) => isIn(key, path) || isIn(path, key));
  const override = overrides.findLast((one) => keyOf(one) !== undefined);
  if (!override) return error;
  const key = keyOf(override)!;
  return new ConfigError(
    `override ${override.text}`,
    [key, ...error.keys.filter((one) => one !== key)],
    error.sentence,
  );
}
