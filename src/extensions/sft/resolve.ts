/** Fills in and checks the config of a supervised run. Every failure is a ConfigError. */

import { over, refuseNoConfig, validate } from '../../grpo/config/resolve.ts';
import { check, NAME_RULE, nearestDivisors, nearestMultiple, optimRules, type Rule } from '../../grpo/config/rules.ts';
import { isTree, valueAt } from '../../grpo/config/tree.ts';
import type { SftConfigInput } from './input.ts';
import { isGsm8k, SFT_SCHEMA, type SftConfig } from './schema.ts';

/** Returns a supervised run's config from a plain object. Throws ConfigError. */
export function resolveSftConfig(tree: SftConfigInput, source = 'config'): SftConfig {
  return resolveSftTree(tree, source);
}

/** Like `resolveSftConfig`, but reads the content of a config file. */
export function resolveSftTree(tree: unknown, source: string): SftConfig {
  refuseNoConfig(SFT_SCHEMA, tree, source);
  // Removes the default number of warm-up steps if the user has set a warm-up ratio, which the default would override.
  const isShare = valueAt(tree, 'optim.lrWarmupStepsRatio') !== undefined;
  const written = isShare && isTree(tree) ? over({ optim: { lrWarmupSteps: 0 } }, tree) : tree;
  const config = validate(SFT_SCHEMA, written, source);
  const { optim, trainer } = config;
  if (valueAt(written, 'optim.lrWarmupSteps') === undefined && trainer.totalTrainingSteps <= optim.lrWarmupSteps)
    optim.lrWarmupSteps = Math.floor(trainer.totalTrainingSteps / 10);
  check(SFT_RULES, config, source);
  return config;
}

/** Largest number of parameters of a model with newly initialised weights: 8 GiB in float32. */
const MOST_PARAMETERS = 2 ** 31;

/** Mistakes that only the demonstrations of the task gsm8k have. Other tasks get `laterErrorRate`. */
const OF_GSM8K = ['guessRate', 'firstOperationErrorRate', 'swappedTemplates'] as const;

const SFT_RULES: readonly Rule<SftConfig>[] = [
  NAME_RULE,
  {
    keys: ['model.hiddenSize', 'model.intermediateSize', 'model.numHiddenLayers', 'model.vocabSize'],
    when: ({ model }) => model.path === undefined && parametersOf(model) > MOST_PARAMETERS,
    say: ({ model }) =>
      `model has about ${parametersOf(model)} parameters; fresh weights may be up to ${MOST_PARAMETERS}: lower ` +
      'model.hiddenSize, model.intermediateSize, model.numHiddenLayers or model.vocabSize.',
  },
  {
    keys: ['model.hiddenSize', 'model.numAttentionHeads'],
    when: ({ model }) => model.hiddenSize % (2 * model.numAttentionHeads) !== 0,
    say: ({ model }) =>
      `model.hiddenSize is ${model.hiddenSize}, which ${model.numAttentionHeads} attention heads cannot divide into even parts. ` +
      `The nearest valid value is ${nearestMultiple(model.hiddenSize, 2 * model.numAttentionHeads)}.`,
  },
  {
    keys: ['model.numKeyValueHeads', 'model.numAttentionHeads'],
    when: ({ model }) => model.numAttentionHeads % model.numKeyValueHeads !== 0,
    say: ({ model: { numKeyValueHeads, numAttentionHeads } }) =>
      `model.numKeyValueHeads is ${numKeyValueHeads}, which does not divide numAttentionHeads ${numAttentionHeads}. ` +
      `The nearest that do are ${nearestDivisors(numAttentionHeads, numKeyValueHeads)}.`,
  },
  {
    keys: ['data.maxLength', 'model.maxPositionEmbeddings', 'data.maxTokenLenPerGpu'],
    when: ({ data, model }) =>
      model.path === undefined && data.maxLength > Math.min(model.maxPositionEmbeddings, data.maxTokenLenPerGpu),
    say: 'data.maxLength is {0} tokens; allowed: up to model.maxPositionEmbeddings {1} and data.maxTokenLenPerGpu {2}.',
  },
  {
    keys: ['data.maxLength', 'data.maxTokenLenPerGpu'],
    when: ({ data }) => data.maxLength > data.maxTokenLenPerGpu,
    say: 'data.maxLength is {0} tokens; allowed: up to data.maxTokenLenPerGpu {1}.',
  },
  {
    keys: ['model.tokenizerPath', 'model.path'],
    when: ({ model }) => model.path !== undefined && model.tokenizerPath !== undefined,
    say: 'model.tokenizerPath is set, but the checkpoint of model.path has its own tokenizer. Leave model.tokenizerPath out.',
  },
  ...OF_GSM8K.map((key): Rule<SftConfig> => ({
    keys: [`data.demonstrations.${key}`, 'task'],
    when: ({ task, data: { demonstrations } }) => !isGsm8k(task) && Boolean(demonstrations[key]),
    say:
      `data.demonstrations.${key} is {0}, but only the demonstrations of the task gsm8k have such mistakes. ` +
      'Leave it out, or set data.demonstrations.laterErrorRate, which every task gets.',
  })),
  ...optimRules<SftConfig>(
    'optim',
    (c) => c.optim,
    (c) => c.trainer.totalTrainingSteps,
  ),
];

const parametersOf = ({ vocabSize, hiddenSize: C, intermediateSize: F, numHiddenLayers }: SftConfig['model']): number =>
  vocabSize * C + numHiddenLayers * (4 * C * C + 3 * C * F);
