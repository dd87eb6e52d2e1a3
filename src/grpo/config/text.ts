/** From YAML text to a config. Apart from resolve.ts, so that a page without YAML does not load its reader. */

import { ConfigError, InputError } from '../../errors.ts';
import { blameOverride, layOverrides, type Override, readOverride } from './overrides.ts';
import { contradiction, foreignClip } from './recipeNotes.ts';
import { resolveSftTree, resolveTrainTree } from './resolve.ts';
import type { SftConfig } from './sftSchema.ts';
import { isTree, show, type Tree } from './tree.ts';
import type { TrainConfig } from './types.ts';
import { readYaml } from './yaml.ts';

interface ParseOptions {
  /** Errors call the text by it: a file name. */
  source: string;
  /** `actor.optim.lr=1e-4`; values are read as YAML. `algorithm.name=gspo` brings its recipe, see overrides.ts. */
  overrides?: readonly string[];
  /** Called with sentences for the start of a run: the algorithm is not the one that its name says. */
  note?: (sentence: string) => void;
}

/** A training run from its YAML. Throws InputError. */
export function parseTrainConfig(yaml: string, options: ParseOptions): TrainConfig {
  const { source, note } = options;
  const { file, overrides, tree, gaveWay } = readTrees(yaml, options);
  const config = resolveUnder(overrides, () => resolveTrainTree(tree, source));
  const given = overrides.map(({ path }) => path);
  const isNamed = overrides.findLast(({ path }) => path === 'algorithm.name');
  if (isNamed && gaveWay.length > 0)
    note?.(`${isNamed.text} sets the recipe, which overrides in ${source}: ${gaveWay.join(', ')}.`);
  const sentences = [isNamed ? undefined : contradiction(file, source, given), foreignClip(config, given)];
  for (const sentence of sentences) if (sentence !== undefined) note?.(sentence);
  return config;
}

/** A supervised run from its YAML. Throws InputError. */
export function parseSftConfig(yaml: string, options: ParseOptions): SftConfig {
  const { overrides, tree } = readTrees(yaml, options);
  return resolveUnder(overrides, () => resolveSftTree(tree, options.source));
}

/** The file, and the file with the overrides over it. */
function readTrees(yaml: string, { source, overrides = [] }: ParseOptions) {
  const file = readTree(yaml, source);
  const read = overrides.map(readOverride);
  return { file, overrides: read, ...layOverrides(file, read) };
}

function readTree(yaml: string, source: string): Tree {
  const tree = readYaml(yaml, source) ?? {};
  if (!isTree(tree)) throw new InputError(`${source} must hold "key: value" lines, but holds ${show(tree)}.`);
  // "model: org/name" says all there is to say about most models.
  if (typeof tree['model'] === 'string') tree['model'] = { path: tree['model'] };
  return tree;
}

/** A refusal of what an override set names the override, not the file. */
function resolveUnder<T>(overrides: readonly Override[], resolve: () => T): T {
  try {
    return resolve();
  } catch (error) {
    throw error instanceof ConfigError ? blameOverride(error, overrides) : error;
  }
}
