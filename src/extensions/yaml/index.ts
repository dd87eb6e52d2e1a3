/**
 * Configs as YAML text with `key=value` overrides, and their changes between two runs. The command line and the page read configs so.
 * Programs import `webgrpo/yaml`.
 */

export { changedKeys, configChanges, trainsOtherwise } from './configChanges.ts';
export { type ParseOptions, parseTrainConfig, readTrees, resolveUnder } from './text.ts';
export { lineOf, readYaml } from './yaml.ts';
