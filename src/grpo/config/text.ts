/** From YAML text to a config. Apart from resolve.ts, so that a page without YAML does not load its reader. */

import { parseDocument } from 'yaml';
import { InputError } from '../../errors.ts';
import { isTree, resolveSftConfig, resolveTrainConfig, type Tree } from './resolve.ts';
import type { TrainConfig } from './types.ts';
import type { SftConfig } from './sftSchema.ts';

interface ParseOptions {
  /** Errors call the text by it: a file name. */
  source: string;
  /** `actor.optim.lr=1e-4`; values are read as YAML. */
  overrides?: readonly string[];
}

/** A training run from its YAML. Throws InputError. */
export function parseTrainConfig(yaml: string, { source, overrides = [] }: ParseOptions): TrainConfig {
  return resolveTrainConfig(readTree(yaml, source, overrides), source);
}

/** A supervised run from its YAML. Throws InputError. */
export function parseSftConfig(yaml: string, { source, overrides = [] }: ParseOptions): SftConfig {
  return resolveSftConfig(readTree(yaml, source, overrides), source);
}

function readTree(yaml: string, source: string, overrides: readonly string[]): unknown {
  const document = parseDocument(yaml);
  const [error] = document.errors;
  if (error) throw new InputError(`${source} is not YAML: ${error.message.split('\n')[0].replace(/:$/, '')}.`);
  const tree = (document.toJS() ?? {}) as unknown;
  if (!isTree(tree)) throw new InputError(`${source} must hold "key: value" lines, but holds ${JSON.stringify(tree)}.`);
  // "model: org/name" says all there is to say about most models.
  if (typeof tree['model'] === 'string') tree['model'] = { path: tree['model'] };
  for (const override of overrides) applyOverride(tree, override);
  return tree;
}

/** Sets one dotted key. The schema, not this, says whether the key exists. */
function applyOverride(tree: Tree, override: string): void {
  const [, path, value] = /^([\w.]+)=(.*)$/s.exec(override) ?? [];
  if (path === undefined) {
    throw new InputError(`Cannot read the override "${override}"; write it as actor.optim.lr=1e-4.`);
  }
  const document = parseDocument(value);
  if (document.errors.length > 0) throw new InputError(`The value of the override "${override}" is not YAML.`);
  const keys = path.split('.');
  let at = tree;
  for (const key of keys.slice(0, -1)) {
    const inner = (Object.hasOwn(at, key) ? at[key] : undefined) ?? setOwn(at, key, {});
    if (!isTree(inner))
      throw new InputError(`The override "${override}" sets a key inside "${key}", which is a value.`);
    at = inner;
  }
  setOwn(at, keys[keys.length - 1], document.toJS() as unknown);
}

/** Sets a key of the tree itself, also one that objects inherit: `tree["__proto__"] = value` would set another object. */
function setOwn<T>(tree: Tree, key: string, value: T): T {
  Object.defineProperty(tree, key, { value, writable: true, enumerable: true, configurable: true });
  return value;
}
