/** Reads a config from YAML text. Separate from resolve.ts, so that a page without YAML does not load the parser. */

import { ConfigError, InputError } from '../../errors.ts';
import { blameOverride, layOverrides, type Override, readOverride } from './overrides.ts';
import { contradiction, foreignClip } from '../../grpo/config/recipeNotes.ts';
import { resolveTrainTree } from '../../grpo/config/resolve.ts';
import { deleteAt, isTree, show, type Tree, valueAt } from '../../grpo/config/tree.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { readYaml } from './yaml.ts';

export interface ParseOptions {
  /** Name of the config text in errors: its file name. */
  source: string;
  /**
   * Overrides such as `actor.optim.lr=1e-4`, whose values are read as YAML. `algorithm.name=gspo` applies its recipe,
   * see overrides.ts.
   */
  overrides?: readonly string[];
  /**
   * Called with each sentence that the run must print at its start, for example that its settings differ from the
   * published method.
   */
  note?: (sentence: string) => void;
  /** Run that wrote the text. It wrote every key, so keys that differ from the algorithm's recipe were reported at its start. */
  run?: object;
  /** False if nothing is trained with the config, so that rules on training alone are skipped. Default: true. */
  trains?: boolean;
}

/**
 * Keys of earlier versions that changed no result. They are ignored in a file, because a run stores every key in its config.yaml. In an
 * override they are unknown keys.
 */
const REMOVED_KEYS = ['rollout.asyncScheduling'];

/** Parses a training run's YAML. Throws InputError. */
export function parseTrainConfig(yaml: string, options: ParseOptions): TrainConfig {
  const { source, note, run } = options;
  const { file, overrides, tree, gaveWay } = readTrees(yaml, options);
  if (isSupervised(file))
    throw new InputError(
      `${source} is the config of supervised training. Start it with webgrpo sft, or give a training config and the supervised run as its model.`,
    );
  const config = resolveUnder(overrides, () => resolveTrainTree(tree, source, options.trains));
  const given = overrides.map(({ path }) => path);
  const isNamed = overrides.findLast(({ path }) => path === 'algorithm.name');
  if (isNamed && gaveWay.length > 0)
    note?.(`${isNamed.text} sets the recipe, which overrides in ${source}: ${gaveWay.join(', ')}.`);
  const sentences = [isNamed || run ? undefined : contradiction(file, source, given), foreignClip(config, given)];
  for (const sentence of sentences) if (sentence !== undefined) note?.(sentence);
  return config;
}

/** True for a config that has keys which only supervised runs have. */
function isSupervised({ optim, data, model }: Tree): boolean {
  const has = (part: unknown, key: string) => isTree(part) && key in part;
  return optim !== undefined && (has(data, 'maxLength') || has(data, 'demonstrations') || has(model, 'hiddenSize'));
}

/** Returns the parsed config without and with the overrides. */
export function readTrees(yaml: string, { source, overrides = [], note }: ParseOptions) {
  const file = readTree(yaml, source);
  for (const key of REMOVED_KEYS) {
    if (valueAt(file, key) === undefined) continue;
    deleteAt(file, key);
    note?.(
      `${source} sets ${key}, which was removed and is ignored. Delete it; a resumed run deletes it from its config.yaml.`,
    );
  }
  const read = overrides.map(readOverride);
  return { file, overrides: read, ...layOverrides(file, read) };
}

function readTree(yaml: string, source: string): Tree {
  const tree = readYaml(yaml, source) ?? {};
  if (!isTree(tree)) throw new InputError(`${source} must hold "key: value" lines, but holds ${show(tree)}.`);
  // `model: org/name` is short for `model.path: org/name`.
  if (typeof tree['model'] === 'string') tree['model'] = { path: tree['model'] };
  return tree;
}

/** Runs `resolve`. If an override set the refused value, the error names that override instead of the file. */
export function resolveUnder<T>(overrides: readonly Override[], resolve: () => T): T {
  try {
    return resolve();
  } catch (error) {
    throw error instanceof ConfigError ? blameOverride(error, overrides) : error;
  }
}
