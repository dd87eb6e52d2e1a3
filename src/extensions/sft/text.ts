/** Reads the config of a supervised run from YAML text. Separate from resolve.ts, so that a page without YAML does not load the parser. */

import { InputError } from '../../errors.ts';
import { type ParseOptions, readTrees, resolveUnder } from '../yaml/index.ts';
import { resolveSftTree } from './resolve.ts';
import type { SftConfig } from './schema.ts';

/** Parses a supervised run's YAML. Throws InputError. */
export function parseSftConfig(yaml: string, options: ParseOptions): SftConfig {
  const { file, overrides, tree } = readTrees(yaml, options);
  if ('actor' in file && 'rollout' in file)
    throw new InputError(`${options.source} is the config of GRPO training. Start it with webgrpo train.`);
  return resolveUnder(overrides, () => resolveSftTree(tree, options.source));
}
