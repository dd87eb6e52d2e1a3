/**
 * `key=value` laid over a file. A given `algorithm.name` brings its recipe: what the file sets of the keys that recipes decide
 * gives way, and what is also given beside the name wins. The command line, `compare` and the page read configs this way.
 */

import { ConfigError, InputError } from '../../errors.ts';
import { isDecidedByRecipe, SHORTHANDS } from './recipeNotes.ts';
import { copyOf, deleteAt, leaves, setAt, show, type Tree } from './tree.ts';
import { readYaml } from './yaml.ts';

export interface Override {
  /** Text as written: `actor.optim.lr=1e-4`. */
  text: string;
  path: string;
  value: unknown;
}

/** Throws InputError if the text is not `key=value`. */
export function readOverride(text: string): Override {
  const [, path, yaml] = /^([\w.]+)=(.*)$/s.exec(text) ?? [];
  if (path === undefined)
    throw new InputError(`Cannot read the override ${show(text)}. Write it as actor.optim.lr=1e-4.`);
  return { text, path, value: readYaml(yaml, `The value of the override ${show(text)}`) };
}

/** The file with the overrides over it, and what of the file gave way to a recipe. The schema says whether keys exist. */
export function layOverrides(file: Tree, overrides: readonly Override[]): { tree: Tree; gaveWay: string[] } {
  const tree = copyOf(file);
  const gaveWay: string[] = [];
  if (overrides.some(({ path }) => path === 'algorithm.name'))
    for (const [path, value] of leaves(file))
      if (isDecidedByRecipe(path)) {
        deleteAt(tree, path);
        if (!overrides.some((override) => override.path === path)) gaveWay.push(`${path} ${show(value)}`);
      }
  // What a shorthand sets wins over the file too.
  for (const { key, sets } of SHORTHANDS)
    if (overrides.some(({ path }) => path === key)) for (const path of sets) deleteAt(tree, path);
  for (const { text, path, value } of overrides)
    if (!setAt(tree, path, value)) {
      const part = path.slice(0, path.lastIndexOf('.'));
      throw new InputError(`The override ${show(text)} sets a key inside "${part}", which is a value.`);
    }
  return { tree, gaveWay };
}

/** Names the last override that a refusal is about: one of its keys, of a part around them or of keys inside. */
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
