/**
 * Fills in a user's config: applies it over the recipe it names, checks it against the schema, and checks rules that
 * span keys. The result can be written as YAML and read back unchanged. Every failure is a ConfigError.
 */

import { distance } from 'fastest-levenshtein';
import * as v from 'valibot';
import { ConfigError } from '../../errors.ts';
import { REGISTER_IT } from '../../shared.ts';
import { policyLossOf } from '../losses/index.ts';
import type { TrainConfigInput } from './input.ts';
import { firstKeyOf, ofPeer } from './peerNames.ts';
import { keyDocs, keysAndParts, MAX_FLOAT32, MIN_FLOAT32 } from './keys.ts';
import { SHORTHANDS } from './recipeNotes.ts';
import { DEFAULT_RECIPE, RECIPES, VERL_DEFAULTS } from './recipes.ts';
import { checkTrainRules, longestSequence, nearestDivisor } from './rules.ts';
import { pipelineOf } from '../pipeline/settings.ts';
import { TRAIN_SCHEMA, type WrittenConfig } from './schema/index.ts';
import { LOWERED_KEYS } from './schema/model.ts';
import { isTree, leaves, setAt, show, type Tree, valueAt } from './tree.ts';
import type { Recipe, TrainConfig } from './types.ts';

const recipes: Readonly<Record<string, Recipe>> = RECIPES;

/**
 * Returns a training run's config from a plain object. Throws ConfigError.
 * @param tree keys of docs/reference/config.md; missing keys have their defaults
 * @param source name of the config in errors
 */
export function resolveTrainConfig(tree: TrainConfigInput, source = 'config'): TrainConfig {
  return resolveTrainTree(tree, source);
}

/**
 * Like `resolveTrainConfig`, but reads the content of a config file.
 * @param trains false to skip the rules on training alone
 */
export function resolveTrainTree(tree: unknown, source: string, trains = true): TrainConfig {
  refuseNoConfig(TRAIN_SCHEMA, tree, source);
  const config = settled(validate(TRAIN_SCHEMA, isTree(tree) ? overRecipe(tree) : tree, source));
  if (valueAt(tree, 'actor.ppoMiniBatchSize') === undefined && config.asyncTraining.requireBatches === undefined)
    config.actor.ppoMiniBatchSize = nearestDivisor(config.data.trainBatchSize, config.actor.ppoMiniBatchSize);
  config.data.trainBatchSize = requiredGroups(config, tree, source);
  const isWritten = (key: string) => valueAt(tree, key) !== undefined;
  if (!isWritten('actor.ppoMaxTokenLenPerGpu'))
    config.actor.ppoMaxTokenLenPerGpu = Math.max(config.actor.ppoMaxTokenLenPerGpu, longestSequence(config));
  const free = LOWERED_KEYS.filter((key) => !isWritten(key));
  config.model.lowerToFit ??= free.length > 0 ? free : ['none'];
  refuseUnknownNumbers(config, source);
  refuseKlOfNothing(tree, source);
  // The number of steps is not limited yet: `withTotalSteps` sets it once the training problems are counted.
  if (countsEpochs(tree)) config.trainer.totalTrainingSteps = Infinity;
  checkTrainRules(config, source, trains);
  return config;
}

/**
 * Number of groups in a step. asyncTraining.requireBatches can set it; throws ConfigError if data.trainBatchSize then
 * has another value.
 */
function requiredGroups(config: TrainConfig, tree: unknown, source: string): number {
  const { asyncTraining, actor, data } = config;
  const { stepGroups: groups } = pipelineOf(config);
  const written = valueAt(tree, 'data.trainBatchSize');
  if (written === undefined || data.trainBatchSize === groups) return groups;
  throw new ConfigError(
    source,
    ['data.trainBatchSize', 'asyncTraining.requireBatches', 'actor.ppoMiniBatchSize'],
    `data.trainBatchSize is ${show(written)}, but a step takes asyncTraining.requireBatches x actor.ppoMiniBatchSize = ` +
      `${asyncTraining.requireBatches} x ${actor.ppoMiniBatchSize} = ${groups} groups. Leave one of the two out.`,
  );
}

/** True if only totalEpochs sets the run's length; `withTotalSteps` converts it to steps. */
function countsEpochs(tree: unknown): boolean {
  const trainer = isTree(tree) && isTree(tree['trainer']) ? tree['trainer'] : {};
  return trainer['totalEpochs'] !== undefined && trainer['totalTrainingSteps'] === undefined;
}

/** Throws ConfigError for a written klLossCoef of 0 beside useKlLoss: only a weight that is not written gets the default. */
function refuseKlOfNothing(tree: unknown, source: string): void {
  const keys = ['actor.klLossCoef', 'actor.useKlLoss'] as const;
  if (valueAt(tree, keys[0]) !== 0 || valueAt(tree, keys[1]) !== true) return;
  throw new ConfigError(
    source,
    keys,
    'actor.klLossCoef is 0, with which actor.useKlLoss: true has no effect. Set a weight above 0, or useKlLoss: false.',
  );
}

/** Throws ConfigError if `actor.policyLoss` has a number that neither a built-in loss nor the chosen loss reads. */
function refuseUnknownNumbers({ actor }: TrainConfig, source: string): void {
  const at = 'actor.policyLoss.';
  const documented = keyDocs(TRAIN_SCHEMA).flatMap(({ path }) => (path.startsWith(at) ? [path.slice(at.length)] : []));
  const own = Object.keys(policyLossOf(actor.policyLoss.lossMode).numbers ?? {});
  for (const [name, value] of Object.entries(actor.policyLoss)) {
    if (documented.includes(name)) continue;
    if (!own.includes(name)) throw unknownKey(TRAIN_SCHEMA, source, at + name);
    if (typeof value !== 'number' || !Number.isFinite(value))
      throw new ConfigError(source, [at + name], `"${at}${name}" is ${show(value)}; allowed: a number.`);
  }
}

/**
 * Throws ConfigError for values that the schema would misread: "__proto__" and other keys that every object inherits,
 * or a list instead of a part, which would pass as an empty part.
 */
export function refuseNoConfig(schema: v.GenericSchema, tree: unknown, source: string): void {
  const keys = keyDocs(schema).map(({ path }) => path);
  const walk = (value: unknown, path: string): void => {
    const inner = keys.find((key) => path === '' || key.startsWith(`${path}.`));
    if (inner !== undefined && value !== undefined && !isTree(value))
      throw new ConfigError(
        source,
        [path],
        `${path === '' ? 'it' : `"${path}"`} is ${show(value)}; allowed: keys such as ${inner}, or nothing at all.`,
      );
    if (!isTree(value)) return;
    for (const [key, below] of Object.entries(value)) {
      const at = path === '' ? key : `${path}.${key}`;
      if (key in Object.prototype) throw unknownKey(schema, source, at);
      walk(below, at);
    }
  };
  walk(tree, '');
}

/** Fills in the defaults of a schema. Throws ConfigError if the tree does not fit it. */
export function validate<S extends v.GenericSchema>(schema: S, tree: unknown, source: string): v.InferOutput<S> {
  const result = v.safeParse(schema, tree);
  if (result.success) return result.output;
  throw refusal(schema, source, tree, result.issues);
}

type Issue = v.BaseIssue<unknown>;
const pathOf = (issue: Issue): string => (issue.path ?? []).map((item) => String(item.key)).join('.');
const isUnknownKey = (issue: Issue): boolean => issue.type === 'strict_object' && issue.expected === 'never';

/**
 * Unknown keys are reported before missing ones: a config of another trainer lacks our keys because it uses that
 * trainer's names.
 */
function refusal(schema: v.GenericSchema, source: string, tree: unknown, issues: readonly Issue[]): ConfigError {
  const issue = issues.find(isUnknownKey) ?? issues[0];
  const path = pathOf(issue);
  if (!isUnknownKey(issue)) return new ConfigError(source, [path], describeIssue(schema, path, issue));
  const written = firstKeyOf(path, issue.path?.at(-1)?.value);
  const hint = peersKey(schema, written);
  if (hint === undefined) return unknownKey(schema, source, path);
  return new ConfigError(source, [written], `${hint}${furtherNames(schema, tree, written)}`);
}

/** Maximum number of names of another trainer that one error lists. */
const SHOWN_NAMES = 12;

/** Returns a sentence on the other keys of a config that are names of TRL or verl; '' without any. */
function furtherNames(schema: v.GenericSchema, tree: unknown, first: string): string {
  const known = keysAndParts(schema);
  const found = (isTree(tree) ? leaves(tree) : []).flatMap(([path]) => {
    const ours = path === first || known.has(path) ? undefined : ofPeer(path, known);
    return ours === undefined ? [] : [`${path} (${ours.key || 'no such setting'})`];
  });
  if (found.length === 0) return '';
  const more = found.length > SHOWN_NAMES ? ` and ${found.length - SHOWN_NAMES} more` : '';
  return ` The same holds for ${found.slice(0, SHOWN_NAMES).join(', ')}${more}.`;
}

/** Describes an issue of the schema: the value found and what is allowed. */
function describeIssue(schema: v.GenericSchema, path: string, issue: v.BaseIssue<unknown>): string {
  const range = keyDocs(schema).find((doc) => doc.path === path)?.range;
  const found = show(issue.input);
  if (issue.input === undefined) return `"${path}" is missing. Set it to ${range ?? 'a value'}.`;
  const bound = issue.requirement;
  if (typeof bound === 'number' && Math.abs(bound) === MAX_FLOAT32)
    return `"${path}" is ${found}; allowed: up to ${MAX_FLOAT32.toPrecision(2)}, the largest number that the GPU has.`;
  if (bound === MIN_FLOAT32)
    return `"${path}" is ${found}; allowed: at least ${MIN_FLOAT32.toPrecision(2)}, since less is 0 on the GPU.`;
  if (issue.type === 'max_value' && typeof bound === 'number' && !range?.includes(' to '))
    return `"${path}" is ${found}; allowed: up to ${bound}.`;
  const elsewhere = ELSEWHERE.find(([key, value]) => key === path && value.test(found))?.[2];
  const hint = issue.message === REGISTER_IT ? REGISTER_IT : elsewhere;
  return `"${path}" is ${found}; allowed: ${range ?? issue.expected ?? 'another value'}.${hint ? ` ${hint}` : ''}`;
}

/** Values of a key that other trainers accept and webgrpo refuses, each with the advice that the error message ends with. */
const ELSEWHERE: readonly (readonly [key: string, value: RegExp, remedy: string])[] = [
  [
    'trainer.logger',
    /wandb/i,
    'For Weights & Biases set it to tensorboard and run "wandb sync --sync-tensorboard" on the run folder.',
  ],
  [
    'trainer.logger',
    /mlflow|swanlab|trackio|clearml|comet|neptune|aim|vemlp/i,
    'Other trackers can import the files of tensorboard or csv, or read metrics.jsonl.',
  ],
];

function unknownKey(schema: v.GenericSchema, source: string, path: string): ConfigError {
  const nearest = nearestKey(path, [...keysAndParts(schema)]);
  const meant = isNear(path, nearest) ? ` Did you mean "${nearest}"?` : '';
  const sentence = `unknown key "${path}".${meant} "webgrpo config" lists every key.`;
  return new ConfigError(source, [path], sentence);
}

/** True if the last words of two paths differ in at most half of their letters. */
function isNear(path: string, key: string): boolean {
  const [name, other] = [path, key].map((one) => one.split('.').at(-1)!.replaceAll('_', '').toLowerCase());
  return distance(name, other) <= Math.max(name.length, other.length) / 2;
}

/** Returns the error message for a key that is a name of TRL or verl; undefined for other keys. */
function peersKey(schema: v.GenericSchema, path: string): string | undefined {
  const found = ofPeer(path, keysAndParts(schema));
  if (!found) return undefined;
  if (found.why)
    return `unknown key "${path}" of ${found.peer}. There is no such setting, since ${found.why}. Leave it out.`;
  return `unknown key "${path}". Did you mean "${found.key}"? ${found.peer} has the other name, see docs/reference/from-trl-verl.md.`;
}

/**
 * Returns the known key nearest to `path`, by the edit distance of the last words; a key in another part of the config
 * counts three edits more. verl's snake_case counts as the same name.
 */
export function nearestKey(path: string, known: readonly string[]): string {
  const camel = path.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  const split = (key: string) => [key.slice(0, Math.max(0, key.lastIndexOf('.'))), key.slice(key.lastIndexOf('.') + 1)];
  const [part, name] = split(camel);
  const cost = (key: string) => {
    const [otherPart, otherName] = split(key);
    return distance(name.toLowerCase(), otherName.toLowerCase()) + (part === otherPart ? 0 : 3);
  };
  return known.reduce((best, key) => (cost(key) < cost(best) ? key : best));
}

/**
 * Returns the user's settings merged over the recipe that they name, and both over verl's defaults. The schema refuses
 * an unknown recipe later.
 */
function overRecipe(tree: Tree): Tree {
  const { name = DEFAULT_RECIPE } = isTree(tree['algorithm']) ? tree['algorithm'] : {};
  const recipe = typeof name === 'string' && Object.hasOwn(recipes, name) ? recipes[name] : {};
  return [recipe, shorthands(tree), tree].reduce<Tree>(over, VERL_DEFAULTS);
}

/** Returns the keys that a user's config sets through shorthands. */
function shorthands(tree: Tree): Tree {
  const set: Tree = {};
  for (const { key, sets, as } of SHORTHANDS) {
    const value = valueAt(tree, key);
    if (value !== undefined) for (const path of sets) setAt(set, path, as(value));
  }
  return set;
}

/** Merges `above` over `below`. A key that is undefined in `above` does not count. */
export function over(below: Tree, above: Tree): Tree {
  const merged: Tree = { ...below };
  for (const [key, value] of Object.entries(above)) {
    const under = merged[key];
    if (value === undefined && Object.hasOwn(merged, key)) continue;
    merged[key] = isTree(under) && isTree(value) ? over(under, value) : value;
  }
  return merged;
}

/**
 * Returns the config with shorthands removed and the KL settings completed. `VERL_DEFAULTS` has set all remaining keys.
 */
function settled(written: WrittenConfig): TrainConfig {
  const { clipRatio: _, ...actor } = written.actor as typeof written.actor & TrainConfig['actor'];
  const { normAdvByStdInGrpo: __, ...algorithm } = written.algorithm as typeof written.algorithm &
    TrainConfig['algorithm'];
  const useKlLoss = written.actor.useKlLoss ?? actor.klLossCoef > 0;
  const klLossCoef = useKlLoss ? actor.klLossCoef || 0.001 : 0;
  return { ...written, actor: { ...actor, useKlLoss, klLossCoef }, algorithm };
}
