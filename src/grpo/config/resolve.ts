/**
 * From what a user wrote to a config without gaps: check against the schema, fill in the algorithm's settings, check rules
 * that span keys. What comes out can be written as YAML and read back to the same.
 * Every failure is an InputError of one sentence.
 */

import { distance } from 'fastest-levenshtein';
import * as v from 'valibot';
import type { PolicyLossSpec } from '../../model/engine.ts';
import { InputError } from '../../errors.ts';
import { checkSftRules, checkTrainRules } from './rules.ts';
import { TRAIN_SCHEMA, type WrittenConfig } from './schema.ts';
import { correctionSettings, lossWeighsItself } from '../correction/settings.ts';
import { resolveRecipe, type AlgorithmSettings } from './recipes.ts';
import { SFT_SCHEMA, type SftConfig } from './sftSchema.ts';
import type { TrainConfig } from './types.ts';

export type { TrainConfig } from './types.ts';

/** A training run from a plain object, as the page and the library API have it. Throws InputError. */
export function resolveTrainConfig(tree: unknown, source = 'config'): TrainConfig {
  const written = validate(TRAIN_SCHEMA, tree, source);
  const config = fillIn(written, source);
  checkTrainRules(config, source);
  return config;
}

/** A supervised run from a plain object. Throws InputError. */
export function resolveSftConfig(tree: unknown, source = 'config'): SftConfig {
  const config = validate(SFT_SCHEMA, tree, source);
  checkSftRules(config, source);
  return config;
}

/** The policy loss as the engine takes it. */
export function policyLossSpec(config: TrainConfig): PolicyLossSpec {
  const { lossMode, clipRatioLow, clipRatioHigh, clipRatioC, klLossCoef, klLossType, entropyCoeff } = config.actor;
  const { policyLoss, klClamp } = config.actor;
  const numbers = Object.entries(policyLoss).filter((entry): entry is [string, number] => entry[1] !== undefined);
  const { rolloutIs, rolloutIsThreshold } = correctionSettings(config);
  return {
    ...{ lossMode, clipRatioLow, clipRatioHigh, clipRatioC, klLossCoef, klLossType, entropyCoeff },
    ...Object.fromEntries(numbers),
    ...(klClamp === undefined ? {} : { klClamp }),
    ...(lossWeighsItself(config) ? { rolloutIs, rolloutIsThreshold } : {}),
  };
}

function validate<S extends v.GenericSchema>(schema: S, tree: unknown, source: string): v.InferOutput<S> {
  const result = v.safeParse(schema, tree);
  if (result.success) return result.output;
  throw new InputError(`${source}: ${describeIssue(schema, result.issues[0])}`);
}

/** One sentence of what was found and what is allowed. */
function describeIssue(schema: v.GenericSchema, issue: v.BaseIssue<unknown>): string {
  const path = (issue.path ?? []).map((item) => String(item.key)).join('.');
  if (issue.type === 'strict_object' && issue.expected === 'never') return unknownKey(schema, path);
  const range = keyDocs(schema).find((doc) => doc.path === path)?.range;
  const found = show(issue.input);
  if (issue.input === undefined) return `"${path}" is missing; set it to ${range ?? 'a value'}.`;
  return `"${path}" is ${found}; allowed: ${range ?? issue.expected ?? 'another value'}.`;
}

function unknownKey(schema: v.GenericSchema, path: string): string {
  const known = withParts(keyDocs(schema).map((doc) => doc.path));
  const nearest = nearestKey(path, known);
  return `unknown key "${path}"; did you mean "${nearest}"? "webgrpo config" lists every key.`;
}

/** The keys and the parts they stand in: "actor.optim.lr" brings "actor" and "actor.optim". */
function withParts(paths: readonly string[]): string[] {
  const parts = paths.flatMap((path) => path.split('.').map((_, i, keys) => keys.slice(0, i + 1).join('.')));
  return [...new Set(parts)];
}

/** By the key itself, then by whether it stands in the same part; verl's snake_case counts as the same name. */
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

export interface DocumentedKey {
  path: string;
  /** undefined where absent means something. */
  default: unknown;
  required: boolean;
  unit: string;
  why: string;
  range: string;
}

interface SchemaShape {
  type: string;
  wrapped?: SchemaShape;
  default?: unknown;
  entries?: Record<string, SchemaShape>;
  pipe?: { type: string; metadata?: { unit: string; why: string; range: string } }[];
}

/** Every key of a schema in order, with what its documentation says. */
export function keyDocs(schema: v.GenericSchema): DocumentedKey[] {
  const keys: DocumentedKey[] = [];
  const walk = (shape: SchemaShape, path: string): void => {
    const inner = shape.type === 'optional' && shape.wrapped ? shape.wrapped : shape;
    if (inner.entries) {
      for (const [key, entry] of Object.entries(inner.entries)) walk(entry, path ? `${path}.${key}` : key);
      return;
    }
    const doc = inner.pipe?.find((item) => item.type === 'metadata')?.metadata;
    if (!doc) throw new Error(`Config key "${path}" has no documentation; build it with configKeys.ts.`);
    keys.push({ path, default: shape.default, required: shape.type !== 'optional', ...doc });
  };
  walk(schema as unknown as SchemaShape, '');
  return keys;
}

/** The recipe's settings into the config; keys the user set win. */
function fillIn(written: WrittenConfig, source: string): TrainConfig {
  const settings = recipeOf(written, source);
  const { actor, algorithm } = written;
  const useKlLoss = actor.useKlLoss ?? settings.klLossCoef > 0;
  const klLossCoef = useKlLoss ? settings.klLossCoef || 0.001 : 0;
  const { clipRatio: _, ...actorKeys } = actor;
  const { normAdvByStdInGrpo: __, ...algorithmKeys } = algorithm;
  return {
    ...written,
    actor: {
      ...actorKeys,
      lossMode: settings.lossMode,
      lossAggMode: settings.lossAggMode,
      clipRatioLow: settings.clipRatioLow,
      clipRatioHigh: settings.clipRatioHigh,
      clipRatioC: settings.clipRatioC,
      policyLoss: lossNumbers(settings),
      entropyCoeff: settings.entropyCoeff,
      useKlLoss,
      klLossCoef,
      klLossType: settings.klLossType as TrainConfig['actor']['klLossType'],
    },
    algorithm: {
      ...algorithmKeys,
      advEstimator: settings.advEstimator,
      scaleRewards: settings.scaleRewards,
      maskTruncated: settings.maskTruncated !== 0,
      filterGroups: { ...algorithm.filterGroups, enable: settings.filterGroups !== 0 },
      overlongBuffer: { ...algorithm.overlongBuffer, len: settings.overlongBufferLen },
      rolloutCorrection: correctionOf(algorithm.rolloutCorrection, settings),
    },
  };
}

function recipeOf({ actor, algorithm }: WrittenConfig, source: string): AlgorithmSettings {
  const { clipRatio } = actor;
  const toNumber = (value: boolean | undefined) => (value === undefined ? undefined : Number(value));
  const byStd = algorithm.normAdvByStdInGrpo;
  try {
    return resolveRecipe(algorithm.name, {
      lossMode: actor.lossMode,
      lossAggMode: actor.lossAggMode,
      clipRatioLow: actor.clipRatioLow ?? clipRatio,
      clipRatioHigh: actor.clipRatioHigh ?? clipRatio,
      clipRatioC: actor.clipRatioC,
      ...actor.policyLoss,
      entropyCoeff: actor.entropyCoeff,
      klLossCoef: actor.klLossCoef,
      klLossType: actor.klLossType,
      advEstimator: algorithm.advEstimator,
      scaleRewards: algorithm.scaleRewards ?? (byStd === undefined ? undefined : byStd ? 'group' : 'none'),
      maskTruncated: toNumber(algorithm.maskTruncated),
      filterGroups: toNumber(algorithm.filterGroups.enable),
      overlongBufferLen: algorithm.overlongBuffer.len,
      rolloutIs: algorithm.rolloutCorrection.rolloutIs,
      rolloutIsThreshold: algorithm.rolloutCorrection.rolloutIsThreshold,
      bypassMode: toNumber(algorithm.rolloutCorrection.bypassMode),
    });
  } catch (error) {
    if (error instanceof RangeError) throw new InputError(`${source}: ${error.message}`);
    throw error;
  }
}

type LossNumbers = WrittenConfig['actor']['policyLoss'];

/** The settings that only one loss reads. */
function lossNumbers(settings: AlgorithmSettings): LossNumbers {
  const known = keyDocs(TRAIN_SCHEMA)
    .map(({ path }) => path)
    .filter((path) => path.startsWith('actor.policyLoss.'))
    .map((path) => path.slice('actor.policyLoss.'.length));
  return Object.fromEntries(known.filter((key) => settings[key] !== undefined).map((key) => [key, settings[key]]));
}

type WrittenCorrection = WrittenConfig['algorithm']['rolloutCorrection'];

function correctionOf(written: WrittenCorrection, settings: AlgorithmSettings): WrittenCorrection {
  const { rolloutIs, rolloutIsThreshold, bypassMode } = settings;
  return {
    ...written,
    ...(typeof rolloutIs === 'string' ? { rolloutIs: rolloutIs as 'none' | 'token' | 'sequence' } : {}),
    ...(rolloutIsThreshold !== undefined ? { rolloutIsThreshold } : {}),
    ...(bypassMode !== undefined ? { bypassMode: bypassMode !== 0 } : {}),
  };
}

export type Tree = Record<string, unknown>;

export function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function show(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}
