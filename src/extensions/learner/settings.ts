/** Validates the options of a learner call by the schema and the rules of the config. Every error is an InputError. */

import { InputError, UserCodeError } from '../../errors.ts';
import { RECIPES, VERL_DEFAULTS } from '../../grpo/config/recipes.ts';
import { keyDocs } from '../../grpo/config/keys.ts';
import { actor as actorSchema } from '../../grpo/config/schema/actor.ts';
import { resolveTrainTree } from '../../grpo/config/resolve.ts';
import type { Recipe, TrainConfig } from '../../grpo/config/types.ts';
import type { AggregateOptions } from '../../grpo/losses/aggregate.ts';
import type { CustomLoss } from '../../grpo/losses/types.ts';
import { directLoss, POLICY_LOSSES, type PolicyLoss } from '../../grpo/losses/index.ts';
import { SUMMED_LOSSES } from './losses.ts';
import type { LossOptions, OptimStepOptions, SampleOptions } from './types.ts';

/**
 * A loss: a name (a method of `algorithm.name`, a `lossMode`, cross_entropy or importance_sampling), the result of `defineLoss`, or a
 * function.
 */
export type Loss = string | PolicyLoss | CustomLoss;

export interface LossSettings {
  config: TrainConfig;
  /** Loss to use instead of the config's; undefined = the config's. */
  loss: PolicyLoss | CustomLoss | undefined;
  /** Which values rows must have, because the loss reads them. */
  reads: { advantages: boolean; logProbs: boolean; refLogProbs: boolean };
  normalization: AggregateOptions;
}

const SUMS = ['globalBatchSize', 'batchNumTokens', 'maxResponseLength'] as const;
const LOSS_OPTIONS = [
  'policyLoss',
  ...keyDocs(actorSchema).flatMap(({ path, ofLoss }) => (ofLoss ? [path] : [])),
  'temperature',
  ...SUMS,
];
const SAMPLE_OPTIONS = [
  ...['temperature', 'topK', 'topP', 'minP', 'repetitionPenalty', 'presencePenalty', 'frequencyPenalty'],
  ...['minNewTokens', 'stop', 'includeStopStrInOutput', 'maxTokens', 'seed', 'step', 'tools'],
];
const OPTIM_OPTIONS = ['lr', 'betas', 'eps', 'weightDecay', 'gradClip'];

/**
 * Returns the validated settings of a `forwardBackward` call.
 * @param rows number of rows of the call, the default divisor of the seq-mean-* aggregations
 */
export function lossSettings(
  config: TrainConfig,
  loss: Loss | undefined,
  options: LossOptions,
  rows: number,
): LossSettings {
  checkNames('forwardBackward', options, LOSS_OPTIONS);
  const { temperature, globalBatchSize = rows, batchNumTokens, maxResponseLength, ...numbers } = options;
  const sums = { globalBatchSize, batchNumTokens, maxResponseLength };
  for (const name of SUMS)
    if (sums[name] !== undefined && !(Number.isInteger(sums[name]) && sums[name] > 0))
      throw new InputError(`forwardBackward: ${name} is ${String(sums[name])}; allowed: an integer of at least 1.`);
  const { userLoss, base } = lossOf(config, loss);
  const entropy = loss === 'cross_entropy' ? 1 : config.rollout.temperature;
  const settled = resolved(config, 'forwardBackward', {
    ...(base.algorithm && { algorithm: base.algorithm }),
    actor: { ...base.actor, ...given(numbers), optim: undefined },
    rollout: { ...config.rollout, temperature: temperature ?? entropy },
  });
  const isPolicy = loss !== 'cross_entropy' && typeof loss !== 'function';
  return {
    config: settled,
    loss: typeof userLoss === 'function' ? finiteLoss(directLoss(userLoss, 'custom')) : userLoss,
    reads: { advantages: isPolicy, logProbs: isPolicy, refLogProbs: settled.actor.klLossCoef > 0 },
    normalization: {
      maxResponseLength: maxResponseLength ?? config.data.maxResponseLength,
      globalBatchSize,
      ...(batchNumTokens !== undefined && { batchNumTokens }),
    },
  };
}

/** Returns the user's loss, if `loss` is one, and base settings. Options of the call replace base settings of the same name. */
function lossOf(
  config: TrainConfig,
  loss: Loss | undefined,
): { userLoss?: PolicyLoss | CustomLoss; base: { actor: object; algorithm?: object } } {
  const { useKlLoss: _, ...actor } = config.actor; // useKlLoss follows from klLossCoef
  if (loss === undefined) return { base: { actor } };
  if (typeof loss === 'function') return { userLoss: loss, base: { actor } };
  if (typeof loss === 'object' && typeof loss?.row === 'function') return { userLoss: loss, base: { actor } };
  if (typeof loss !== 'string')
    throw new InputError(
      `forwardBackward: the loss is ${describeType(loss)}. Give a name, a row of defineLoss, or a function.`,
    );
  if (Object.hasOwn(SUMMED_LOSSES, loss))
    return {
      userLoss: SUMMED_LOSSES[loss],
      base: { algorithm: {}, actor: { ...sizesOf(actor), lossAggMode: 'token-sum' } },
    };
  return { base: methodOf(loss, actor) };
}

const describeType = (value: unknown): string => (value === null ? 'null' : `a ${typeof value} without \`row\``);

/** Returns the published settings of a method such as grpo, or, for a `lossMode` that belongs to no method, verl's defaults. */
function methodOf(name: string, actor: Omit<TrainConfig['actor'], 'useKlLoss'>) {
  const recipes: Readonly<Record<string, Recipe>> = RECIPES;
  const method = Object.hasOwn(recipes, name)
    ? name
    : Object.keys(recipes).find((key) => recipes[key].actor?.policyLoss?.lossMode === name);
  if (method !== undefined) return { algorithm: { name: method }, actor: sizesOf(actor) };
  if (!Object.hasOwn(POLICY_LOSSES, name)) {
    const known = new Set([...Object.keys(POLICY_LOSSES), ...Object.keys(recipes), ...Object.keys(SUMMED_LOSSES)]);
    throw new InputError(`forwardBackward: there is no loss "${name}"; known: ${[...known].join(', ')}.`);
  }
  const { lossAggMode } = VERL_DEFAULTS.actor;
  return { algorithm: {}, actor: { ...sizesOf(actor), lossAggMode, policyLoss: { lossMode: name } } };
}

/** Returns the settings about sizes and speed, which no loss or method (grpo, dapo, ...) sets. */
const sizesOf = ({
  ppoMiniBatchSize,
  ppoMaxTokenLenPerGpu,
  ppoMicroBatchSizePerGpu,
  skipZeroAdvantages,
}: Omit<TrainConfig['actor'], 'useKlLoss'>) => ({
  ppoMiniBatchSize,
  ppoMaxTokenLenPerGpu,
  ppoMicroBatchSizePerGpu,
  skipZeroAdvantages,
});

/** Wraps a user's loss function: throws if the function returns a value that is not finite, whose gradient would make every weight NaN. */
function finiteLoss(loss: CustomLoss): CustomLoss {
  return (rows) => {
    const result = loss(rows);
    for (const name of ['dLogProbs', 'dEntropy'] as const) {
      const bad = Array.from(result?.[name] ?? []).findIndex((value) => !Number.isFinite(value));
      if (bad >= 0)
        throw new UserCodeError(
          'loss returned',
          `The loss returned ${result[name]![bad]} as ${name}[${bad}]. Return finite numbers.`,
        );
    }
    return result;
  };
}

export interface SampleSettings {
  config: TrainConfig;
  /** True for greedy sampling (temperature 0), which the config of a training run does not allow. */
  greedy: boolean;
  seed: number;
  /** Step number in the random keys; undefined = the number of this `sample` call. */
  step: number | undefined;
}

/** Returns the validated settings of a `sample` call; the config supplies options that are not given. Throws InputError. */
export function sampleSettings(config: TrainConfig, options: SampleOptions): SampleSettings {
  checkNames('sample', options, SAMPLE_OPTIONS);
  const { temperature, maxTokens, seed, step, tools: _, ...rollout } = options;
  const greedy = temperature === 0;
  const longest = config.data.maxResponseLength;
  const settled = resolved(config, 'sample', {
    ...(seed !== undefined && { seed }),
    rollout: { ...config.rollout, ...given(rollout), ...(!greedy && temperature !== undefined && { temperature }) },
  });
  if (maxTokens !== undefined && !(Number.isInteger(maxTokens) && maxTokens >= 1 && maxTokens <= longest))
    throw new InputError(
      `sample: maxTokens is ${String(maxTokens)}; allowed: 1 to ${longest}, the engine's data.maxResponseLength.`,
    );
  if (step !== undefined && !(Number.isInteger(step) && step >= 0))
    throw new InputError(`sample: step is ${String(step)}; allowed: an integer of at least 0.`);
  const data = { ...settled.data, maxResponseLength: maxTokens ?? longest };
  return {
    config: { ...settled, data },
    greedy,
    seed: settled.seed,
    step: step ?? (seed === undefined ? undefined : 0),
  };
}

/** Returns the config with the optimizer settings of an `optimStep` call. */
export function optimSettings(config: TrainConfig, options: OptimStepOptions): TrainConfig {
  checkNames('optimStep', options, OPTIM_OPTIONS);
  const { gradClip = config.actor.gradClip, ...optim } = options;
  const constant = { lrSchedulerType: 'constant', lrWarmupSteps: 0, lrWarmupStepsRatio: 0 };
  return resolved(config, 'optimStep', {
    actor: { ...config.actor, gradClip, optim: { ...config.actor.optim, ...constant, ...given(optim) } },
  });
}

/**
 * Returns the config with `changes` applied and validated.
 * @param verb method of the learner, for errors
 * @param changes keys to replace; the trainer section of the config is ignored
 */
const resolved = (config: TrainConfig, verb: string, changes: object): TrainConfig =>
  resolveTrainTree({ ...config, trainer: undefined, ...changes }, verb);

function checkNames(verb: string, options: object, known: readonly string[]): void {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw new InputError(`${verb}: there is no option "${unknown}". There are ${known.join(', ')}.`);
}

/** Removes options whose value is undefined: they count as absent. */
const given = (options: object): object =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
