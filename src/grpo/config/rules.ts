/**
 * Tables of rules that involve several config keys. If a size does not divide another evenly, the error names the
 * nearest divisors.
 */

import { ConfigError, InputError } from '../../errors.ts';
import type { TrainConfig } from './types.ts';
import { callFormatOf, toolParserOf } from '../../rollout/tools/parser.ts';
import { warmupSteps } from '../update/learningRate.ts';
import { correctionSettings } from '../correction/settings.ts';
import { hasRewardModels } from '../generate/options.ts';
import { pipelineOf } from '../pipeline/settings.ts';
import { rolloutCorrection } from '../correction/correct.ts';
import type { OptimizerKeys } from '../../model/optimizer/spec.ts';
import { TEMPERATURE } from './keys.ts';
import { show, valueAt } from './tree.ts';

/** Largest number of samples in a step, and in an evaluation. */
const MOST_SAMPLES = 2 ** 20;
const MOST_TOKENS = 2 ** 32;
/** Maximum bytes of a run's name. File systems allow 255 bytes; the rest is for suffixes. */
const LONGEST_NAME = 128;

/** Advantage estimators for which samples of a group can differ although their rewards are equal. */
const LEARNS_FROM_EQUAL: readonly string[] = ['rae', 'remax', 'reinforce_plus_plus', 'gdpo', 'turn_loo'];

/** A rule, and the error message for a config that breaks it. */
export interface Rule<C> {
  /** Keys that the message is about, its subject first. */
  keys: readonly string[];
  /** True if a config breaks the rule. */
  when: (config: C) => boolean;
  /** True for a rule that only a command that trains can break: an evaluation or an answer does not use what it is about. */
  ofTraining?: true;
  /** The error message. In a plain text, {0}, {1}, ... are the values of `keys`. */
  say: string | ((config: C) => string);
}

/**
 * Checks the config of a training run. Throws ConfigError.
 * @param trains false to skip the rules on training alone
 */
export const checkTrainRules = (config: TrainConfig, source: string, trains = true): void =>
  check(trains ? TRAIN_RULES : TRAIN_RULES.filter(({ ofTraining }) => !ofTraining), config, source);

/** Checks a run's name, which must be a valid folder name on every system. Throws ConfigError. */
export const checkName = (name: string, source: string): void => check([NAME_RULE], { name }, source);

/** Throws ConfigError for the first broken rule. */
export function check<C>(rules: readonly Rule<C>[], config: C, source: string): void {
  const broken = rules.find(({ when }) => when(config));
  if (!broken) return;
  const { keys, say } = broken;
  const fill = (text: string) => text.replace(/\{(\d)\}/g, (_, i: string) => String(valueAt(config, keys[Number(i)])));
  throw new ConfigError(source, keys, typeof say === 'string' ? fill(say) : say(config));
}

export const NAME_RULE: Rule<{ name: string }> = {
  keys: ['name'],
  when: ({ name }) => !/^[\w-][\w.-]*$/.test(name) || name.length > LONGEST_NAME,
  say: ({ name }) =>
    `name is ${show(name)}; allowed: letters, digits, ., _ and -, not starting with a dot, at most ${LONGEST_NAME}. Rename it.`,
};

const AMOUNTS: readonly Rule<TrainConfig>[] = [
  samplesRule('data.trainBatchSize', 'rollout.n', (c) => [c.data.trainBatchSize, c.rollout.n]),
  samplesRule('data.valMaxSamples', 'rollout.valKwargs.n', (c) => [c.data.valMaxSamples, c.rollout.valKwargs.n]),
  {
    keys: ['data.trainBatchSize', 'rollout.n', 'data.maxPromptLength', 'data.maxResponseLength'],
    when: (c) => batchTable(c).samples * longestSequence(c) > MOST_TOKENS,
    say: (c) =>
      `data.trainBatchSize x rollout.n x (data.maxPromptLength + data.maxResponseLength) is ${batchTable(c).samples * longestSequence(c)} ` +
      `tokens per step. At most ${MOST_TOKENS} are allowed, because a 32-bit number counts them. Lower one of these keys.`,
  },
  {
    keys: ['rollout.valKwargs.temperature'],
    when: ({ rollout: { valKwargs } }) => valKwargs.temperature > 0 && valKwargs.temperature < TEMPERATURE[0],
    say: `rollout.valKwargs.temperature is {0}; allowed: 0, or at least ${TEMPERATURE[0]}.`,
  },
  {
    keys: ['actor.ppoMiniBatchSize', 'data.trainBatchSize'],
    when: (c) => c.data.trainBatchSize % c.actor.ppoMiniBatchSize !== 0,
    say: ({ data: { trainBatchSize }, actor: { ppoMiniBatchSize } }) =>
      `actor.ppoMiniBatchSize is ${ppoMiniBatchSize} prompts, which does not divide data.trainBatchSize ${trainBatchSize}. ` +
      `${nearestDivisors(trainBatchSize, ppoMiniBatchSize)}`,
  },
  {
    keys: ['actor.ppoMicroBatchSizePerGpu', 'actor.ppoMiniBatchSize', 'rollout.n'],
    when: ({ actor, rollout }) => (actor.ppoMiniBatchSize * rollout.n) % (actor.ppoMicroBatchSizePerGpu ?? 1) !== 0,
    say: ({ actor: { ppoMiniBatchSize, ppoMicroBatchSizePerGpu: micro = 1 }, rollout: { n } }) =>
      `actor.ppoMicroBatchSizePerGpu is ${micro} sequences, which does not divide the mini-batch of ${ppoMiniBatchSize} ` +
      `prompts x ${n} samples = ${ppoMiniBatchSize * n}. ${nearestDivisors(ppoMiniBatchSize * n, micro)}`,
  },
  {
    keys: ['actor.ppoMaxTokenLenPerGpu', 'data.maxPromptLength', 'data.maxResponseLength'],
    ofTraining: true,
    when: (c) => c.actor.ppoMaxTokenLenPerGpu < longestSequence(c),
    say: (c) =>
      `actor.ppoMaxTokenLenPerGpu is ${c.actor.ppoMaxTokenLenPerGpu} tokens, but one sequence may take data.maxPromptLength + ` +
      `data.maxResponseLength = ${longestSequence(c)}. Raise it to at least that.`,
  },
];

function samplesRule(key: string, times: string, of: (config: TrainConfig) => [number, number]): Rule<TrainConfig> {
  const product = (c: TrainConfig) => of(c)[0] * of(c)[1];
  return {
    keys: [key, times],
    when: (c) => product(c) > MOST_SAMPLES,
    say: (c) =>
      `${key} x ${times} is ${of(c).join(' x ')} = ${product(c)} samples. At most ${MOST_SAMPLES} are allowed.`,
  };
}

/** Number of tokens of the longest prompt and response. */
export const longestSequence = ({ data }: TrainConfig): number => data.maxPromptLength + data.maxResponseLength;

const hasAdapters = ({ model }: TrainConfig): boolean => model.loraRank > 0 || model.loraAdapterPath !== undefined;

const ADAPTERS: readonly Rule<TrainConfig>[] = [
  {
    keys: ['engine', 'model.loraRank', 'model.loraAdapterPath'],
    when: (c) => c.engine === 'tfjs' && hasAdapters(c),
    say: 'engine is "tfjs", which trains every weight and no adapters. Use engine: wgsl, or model.loraRank: 0.',
  },
  {
    keys: ['engine', 'model.enableGradientCheckpointing'],
    when: (c) => c.engine === 'tfjs' && c.model.enableGradientCheckpointing,
    say: 'engine is "tfjs", whose tape keeps every activation. Use engine: wgsl, or enableGradientCheckpointing: false.',
  },
  {
    keys: ['engine', 'model.dtype'],
    when: (c) => c.engine === 'tfjs' && c.model.dtype !== 'float32',
    say: 'engine is "tfjs", which computes in float32. Use engine: wgsl, or model.dtype: float32.',
  },
  {
    keys: ['model.quantization', 'model.loraRank'],
    ofTraining: true,
    when: (c) => !hasAdapters(c) && c.model.quantization !== 'none',
    say: 'model.quantization is "{0}", which freezes the weights. Set model.loraRank (for example 16) to train an adapter, or remove model.quantization.',
  },
  {
    keys: ['trainer.refUpdateFreq', 'model.loraRank'],
    when: (c) => hasAdapters(c) && c.trainer.refUpdateFreq > 0,
    say: 'trainer.refUpdateFreq is set, but with adapters the reference is the frozen base itself. Remove trainer.refUpdateFreq, or set model.loraRank to 0.',
  },
];

const ADVANTAGES_AND_REWARDS: readonly Rule<TrainConfig>[] = [
  {
    keys: ['rollout.n', 'algorithm.advEstimator'],
    when: (c) => c.rollout.n < 2 && ['rloo', 'grpo_passk', 'turn_loo'].includes(c.algorithm.advEstimator),
    say: 'rollout.n is {0}, but advEstimator "{1}" compares samples. Set it to 2 or more.',
  },
  {
    keys: ['rollout.n', 'algorithm.filterGroups.enable', 'algorithm.replayBufferSize'],
    when: ({ rollout, algorithm }) =>
      rollout.n < 2 && (algorithm.filterGroups.enable === true || algorithm.replayBufferSize > 0),
    say: 'rollout.n is {0}, but algorithm.filterGroups and algorithm.replayBufferSize keep groups whose samples differ. Set it to 2 or more.',
  },
  {
    keys: ['algorithm.useKlInReward', 'actor.useKlLoss'],
    when: (c) => c.algorithm.useKlInReward && c.actor.useKlLoss,
    say: 'algorithm.useKlInReward and actor.useKlLoss are both on, which counts the KL twice. Switch one off.',
  },
  {
    keys: ['reward.judge.path', 'reward.judge.checkpoint'],
    when: ({ reward: { judge } }) => judge.path !== undefined && judge.checkpoint !== undefined,
    say: 'reward.judge.path and reward.judge.checkpoint both name a judge. Leave one of them out.',
  },
  {
    keys: ['reward.judge.maxPromptLength', 'actor.ppoMaxTokenLenPerGpu'],
    when: ({ reward: { judge, rubric }, actor }) =>
      rubric !== undefined &&
      (judge.path ?? judge.checkpoint) === undefined &&
      judge.maxPromptLength > actor.ppoMaxTokenLenPerGpu,
    say:
      'reward.judge.maxPromptLength is {0} tokens, but the reference judges in passes of actor.ppoMaxTokenLenPerGpu = {1}. ' +
      'Lower the first or raise the second.',
  },
  {
    keys: ['reward.overlongBuffer.len', 'data.maxResponseLength'],
    ofTraining: true,
    when: (c) => c.reward.overlongBuffer.len > c.data.maxResponseLength,
    say: 'reward.overlongBuffer.len is {0} tokens; allowed: up to data.maxResponseLength, {1}.',
  },
  {
    keys: ['algorithm.replayBufferSize', 'algorithm.filterGroups.enable', 'algorithm.advEstimator'],
    when: ({ algorithm: { replayBufferSize, filterGroups, advEstimator } }) =>
      replayBufferSize > 0 && (filterGroups.enable === true || LEARNS_FROM_EQUAL.includes(advEstimator)),
    ofTraining: true,
    say:
      'algorithm.replayBufferSize is {0}, which cannot be combined with algorithm.filterGroups, because that already replaces ' +
      `groups without a signal, nor with advEstimator ${LEARNS_FROM_EQUAL.join(', ')}, because these learn from groups of equal ` +
      'rewards. Set replayBufferSize to 0 or use another recipe.',
  },
  {
    keys: ['reward.ruleWeight', 'reward.judge.weight', 'reward.model.path', 'reward.rubric'],
    ofTraining: true,
    when: ({ reward }) => reward.ruleWeight !== 1 && !hasRewardModels(reward),
    say:
      "reward.ruleWeight is {0}, but no model's score is added to the task's. Leave it out, or set reward.judge.weight, " +
      'reward.model.path or reward.rubric.',
  },
  {
    keys: ['algorithm.rolloutCorrection'],
    when: (c) => correctionProblem(c) !== undefined,
    say: (c) => `algorithm.rolloutCorrection: ${correctionProblem(c)}`,
  },
  {
    keys: ['rollout.multiTurn.constrainToolCalls', 'rollout.multiTurn.format'],
    when: (c) => formatProblem(c) !== undefined,
    say: (c) => `${formatProblem(c)}`,
  },
  {
    keys: ['algorithm.rolloutCorrection.rolloutIs', 'actor.policyLoss.lossMode'],
    when: (c) => c.actor.policyLoss.lossMode === 'vespo' && c.algorithm.rolloutCorrection.rolloutIs === 'sequence',
    say:
      'algorithm.rolloutCorrection.rolloutIs is "sequence", but VESPO itself computes the ' +
      'weight of a sequence from the weights of its tokens. Set rolloutIs to "token", or remove it.',
  },
  {
    keys: [
      'algorithm.advEstimator',
      'algorithm.useKlInReward',
      'reward.overlongBuffer.len',
      'algorithm.lengthPenalty.type',
    ],
    when: (c) => c.algorithm.advEstimator === 'gdpo' && scoreChanges(c).length > 0,
    say: (c) =>
      `algorithm.advEstimator is "gdpo", which reads the task's single rewards and not the score that ` +
      `${scoreChanges(c).join(' and ')} would change. Leave out what changes the score, or use advEstimator "grpo".`,
  },
  {
    keys: ['algorithm.gdpoRewardWeights', 'algorithm.gdpoRewardKeys'],
    when: ({ algorithm: { gdpoRewardWeights: weights, gdpoRewardKeys: names = [] } }) =>
      weights !== undefined && weights.length !== names.length,
    say: ({ algorithm: { gdpoRewardWeights: weights = [], gdpoRewardKeys: names = [] } }) =>
      `algorithm.gdpoRewardWeights has ${weights.length} weights for ${names.length} gdpoRewardKeys. Give one for each key.`,
  },
  {
    keys: ['algorithm.gdpoRewardWeights', 'reward.weights'],
    when: (c) => c.algorithm.gdpoRewardWeights !== undefined && Object.keys(c.reward.weights).length > 0,
    say: 'algorithm.gdpoRewardWeights and reward.weights both give weights of named rewards. Leave one of them out.',
  },
];

/**
 * Tests the thresholds of rollout correction by applying them to one token. They are texts such as '0.5_2', which only
 * the code of the correction can parse.
 */
const correctionProblem = (config: TrainConfig): string | undefined =>
  problemOf(RangeError, () =>
    rolloutCorrection(correctionSettings(config), { oldLogp: [[0]], rolloutLogp: [[0]], masks: [[1]] }),
  );

const formatProblem = ({ rollout: { multiTurn } }: TrainConfig): string | undefined =>
  multiTurn.enable && multiTurn.constrainToolCalls
    ? problemOf(InputError, () => callFormatOf(toolParserOf(multiTurn.format)))
    : undefined;

function problemOf(kind: typeof RangeError | typeof InputError, read: () => unknown): string | undefined {
  try {
    read();
    return undefined;
  } catch (error) {
    if (error instanceof kind) return error.message;
    throw error;
  }
}

const scoreChanges = ({ algorithm, reward }: TrainConfig): string[] => [
  ...(algorithm.useKlInReward ? ['algorithm.useKlInReward'] : []),
  ...(reward.overlongBuffer.len > 0 ? ['reward.overlongBuffer.len'] : []),
  ...(algorithm.lengthPenalty.type === 'none' ? [] : ['algorithm.lengthPenalty.type']),
];

const COURSE: readonly Rule<TrainConfig>[] = [
  {
    keys: ['trainer.refUpdateFreq', 'actor.useKlLoss', 'algorithm.useKlInReward'],
    when: (c) => c.trainer.refUpdateFreq > 0 && !c.actor.useKlLoss && !c.algorithm.useKlInReward,
    say: 'trainer.refUpdateFreq refreshes the reference, but no KL term uses a reference. Set actor.useKlLoss: true, or remove refUpdateFreq.',
  },
  {
    keys: ['trainer.resumeMode', 'trainer.resumeFromPath'],
    when: ({ trainer }) => trainer.resumeMode === 'resume_path' && trainer.resumeFromPath === undefined,
    say:
      'trainer.resumeMode is "resume_path", but trainer.resumeFromPath is missing. Set it to a checkpoint or run folder, or ' +
      'use resumeMode "auto".',
  },
  {
    keys: ['trainer.defaultLocalDir'],
    when: ({ trainer }) => /^~([\\/]|$)/.test(trainer.defaultLocalDir),
    say: 'trainer.defaultLocalDir is "{0}", and a config file does not expand "~". Write the whole path.',
  },
  {
    keys: ['trainer.greaterIsBetter', 'trainer.metricForBestModel'],
    when: ({ trainer }) => trainer.greaterIsBetter !== undefined && trainer.metricForBestModel === undefined,
    say: 'trainer.greaterIsBetter is set, but it has no effect without trainer.metricForBestModel. Set both, or neither.',
  },
  {
    keys: ['actor.entropyCoeffMin', 'actor.entropyCoeffMax'],
    when: ({ actor }) => actor.entropyCoeffMin > actor.entropyCoeffMax,
    say: 'actor.entropyCoeffMin is {0}, above entropyCoeffMax {1}. Swap them.',
  },
  {
    keys: ['rollout.partialRollout', 'rollout.overSampleRate'],
    when: ({ rollout }) => rollout.partialRollout && rollout.overSampleRate === 0,
    say: 'rollout.partialRollout carries over what rollout.overSampleRate leaves, which is 0. Set it above 0, say 0.25.',
  },
  {
    keys: ['rollout.overSampleRate', 'algorithm.filterGroups.enable', 'algorithm.advEstimator'],
    when: ({ rollout, algorithm: { filterGroups, advEstimator } }) =>
      rollout.overSampleRate > 0 && (filterGroups.enable === true || advEstimator === 'remax'),
    say:
      'rollout.overSampleRate is {0}, which cannot be combined with algorithm.filterGroups or with advEstimator "remax". ' +
      'Set overSampleRate to 0 or use another recipe.',
  },
  notAsync(
    'rollout.overSampleRate',
    ', because groups are in flight from step to step anyway',
    (c) => c.rollout.overSampleRate > 0,
  ),
  notAsync(
    'algorithm.replayBufferSize',
    ', because its groups are older than the pipeline allows',
    (c) => c.algorithm.replayBufferSize > 0,
  ),
  notAsync(
    'algorithm.advEstimator',
    ' "remax", because the greedy answers would come from other weights',
    (c) => c.algorithm.advEstimator === 'remax',
  ),
  notAsync('engine', ' "tfjs", which cannot generate while it trains', (c) => c.engine === 'tfjs'),
  {
    keys: ['trainer.testFreq', 'asyncTraining.triggerParameterSyncStep'],
    when: (c) => c.trainer.testFreq % pipelineOf(c).syncSteps !== 0,
    say: (c) =>
      `trainer.testFreq is ${c.trainer.testFreq}, but rollout gets the weights every asyncTraining.triggerParameterSyncStep = ` +
      `${pipelineOf(c).syncSteps} steps, and an evaluation uses those weights. The nearest valid value is ${nearestMultiple(c.trainer.testFreq, pipelineOf(c).syncSteps)}.`,
  },
  {
    keys: ['asyncTraining.maxOffPolicyThreshold', 'asyncTraining.stalenessThreshold'],
    when: (c) =>
      c.trainer.pipeline === 'fully-async' && pipelineOf(c).maxAge < Math.ceil(c.asyncTraining.stalenessThreshold),
    say: 'asyncTraining.maxOffPolicyThreshold is {0}, but stalenessThreshold {1} lets groups get older than that, and such groups would be dropped. Raise the first or lower the second.',
  },
  {
    keys: ['trainer.stopWhen.metric'],
    when: ({ trainer: { stopWhen } }) => stopWhen !== undefined && (stopWhen.atLeast ?? stopWhen.atMost) === undefined,
    say: 'trainer.stopWhen names {0} without a value. Set atLeast or atMost.',
  },
  readsEvaluations('trainer.stopWhen.metric', ({ trainer }) => trainer.stopWhen?.metric),
  readsEvaluations('trainer.metricForBestModel', ({ trainer }) => trainer.metricForBestModel),
  {
    keys: ['data.difficulty.hard', 'data.difficulty.easy'],
    when: ({ data: { difficulty } }) => difficulty.hard > difficulty.easy,
    say: 'data.difficulty.hard is {0}, above easy {1}. Swap them.',
  },
];

/** Rule that a metric which only evaluations have needs evaluations during the run. */
function readsEvaluations(key: string, metricOf: (config: TrainConfig) => string | undefined): Rule<TrainConfig> {
  return {
    keys: [key, 'trainer.testFreq'],
    ofTraining: true,
    when: (c) => metricOf(c)?.startsWith('val-') === true && c.trainer.testFreq <= 0,
    say: `${key} is {0}, but trainer.testFreq is {1}, so nothing is evaluated during the run. Set trainer.testFreq, for example to 10.`,
  };
}

/**
 * Rule that a setting cannot be combined with an asynchronous pipeline.
 * @param why the setting's value and the reason, as the error words them
 */
function notAsync(key: string, why: string, when: (config: TrainConfig) => boolean): Rule<TrainConfig> {
  return {
    keys: ['trainer.pipeline', key],
    when: (c) => pipelineOf(c).isAsync && when(c),
    say: `trainer.pipeline is "{0}", which does not go together with ${key}${why}. Leave one of them out.`,
  };
}

type Optim = OptimizerKeys & { lrSchedulerType: string; lrWarmupSteps: number; lrWarmupStepsRatio: number };

/**
 * Rules of an optimizer and of its schedule. A key that the chosen optimizer does not read must not be set.
 * @param part path of the optimizer's part of the config
 */
export function optimRules<C>(part: string, of: (config: C) => Optim, stepsOf: (config: C) => number): Rule<C>[] {
  const unread = (key: 'momentum' | 'nesterov'): Rule<C> => ({
    keys: [`${part}.${key}`, `${part}.optimizer`],
    when: (c) => of(c)[key] !== undefined && ['AdamW', 'SignSGD'].includes(of(c).optimizer),
    say: `${part}.${key} is set, but ${part}.optimizer is {1}, which has none. Leave the key out, or use SGD or Muon.`,
  });
  const schedule = (key: 'lrWarmupSteps' | 'lrWarmupStepsRatio', allowed: (steps: number) => string): Rule<C> => ({
    keys: [`${part}.${key}`],
    when: (c) =>
      of(c).lrSchedulerType !== 'constant' &&
      of(c).lrWarmupSteps > 0 === (key === 'lrWarmupSteps') &&
      ![0, Infinity].includes(stepsOf(c)) &&
      stepsOf(c) <= warmupSteps(of(c), stepsOf(c)),
    say: (c) =>
      `${part}.${key} is ${of(c)[key]}, but a ${of(c).lrSchedulerType} schedule needs it below ${allowed(stepsOf(c))}. ` +
      `Lower it, or set ${part}.lrSchedulerType: constant.`,
  });
  return [
    unread('momentum'),
    unread('nesterov'),
    {
      keys: [`${part}.nesterov`, `${part}.momentum`],
      when: (c) => of(c).optimizer === 'SGD' && of(c).nesterov === true && !of(c).momentum,
      say: `${part}.nesterov is true, but SGD has no momentum. Set ${part}.momentum, say 0.9.`,
    },
    schedule('lrWarmupSteps', (steps) => `the run's ${steps} steps`),
    schedule('lrWarmupStepsRatio', () => '1'),
  ];
}

const TRAIN_RULES: readonly Rule<TrainConfig>[] = [
  {
    keys: ['actor.clipRatioC'],
    when: ({ actor }) => !(actor.clipRatioC > 1),
    say: 'actor.clipRatioC is {0}; allowed: above 1, e.g. 3.',
  },
  NAME_RULE,
  ...[...AMOUNTS, ...ADAPTERS, ...ADVANTAGES_AND_REWARDS, ...COURSE],
  ...optimRules<TrainConfig>(
    'actor.optim',
    (c) => c.actor.optim,
    (c) => c.trainer.totalTrainingSteps,
  ),
];

/** Numbers computed from the config that a run prints. */
export function batchTable({ data, rollout, actor }: TrainConfig): {
  samples: number;
  updates: number;
  maxTokens: number;
} {
  return {
    samples: data.trainBatchSize * rollout.n,
    updates: (data.trainBatchSize / actor.ppoMiniBatchSize) * actor.ppoEpochs,
    maxTokens: actor.ppoMiniBatchSize * rollout.n * data.maxResponseLength,
  };
}

/**
 * Returns a sentence with the divisors of `total` next below and next above `size`; only one of them if `size` is out
 * of range.
 */
export function nearestDivisors(total: number, size: number): string {
  const found = divisorsAround(total, size);
  return `The nearest that ${found.length > 1 ? 'do are' : 'does is'} ${found.join(' and ')}.`;
}

/** The divisor of `total` that is nearest to `size` by ratio; the larger of two equally near ones. */
export function nearestDivisor(total: number, size: number): number {
  const ratio = (divisor: number) => Math.max(divisor / size, size / divisor);
  return total % size === 0 ? size : divisorsAround(total, size).reduce((a, b) => (ratio(a) < ratio(b) ? a : b));
}

function divisorsAround(total: number, size: number): number[] {
  let [below, above]: (number | undefined)[] = [undefined, undefined];
  // Divisors come in pairs; one of each pair is at most the square root.
  for (let d = 1; d * d <= total; d++)
    for (const divisor of total % d === 0 ? [d, total / d] : []) {
      if (divisor < size) below = Math.max(divisor, below ?? divisor);
      if (divisor > size) above = Math.min(divisor, above ?? divisor);
    }
  return [below, above].filter((d) => d !== undefined);
}

export function nearestMultiple(value: number, of: number): number {
  return Math.max(1, Math.round(value / of)) * of;
}
