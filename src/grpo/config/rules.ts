/** Rules that span keys. Sizes that do not divide are refused with the nearest that do. */

import { InputError } from '../../errors.ts';
import type { TrainConfig } from './types.ts';
import { callFormatOf, toolParserOf } from '../../rollout/tools/parser.ts';
import { warmupSteps } from '../update/learningRate.ts';
import { correctionSettings } from '../correction/settings.ts';
import { rolloutCorrection } from '../correction/correct.ts';
import type { OptimizerKeys } from '../../model/optimizer/spec.ts';
import type { SftConfig } from './sftSchema.ts';
import { TEMPERATURE } from './keys.ts';
import { show } from './tree.ts';

/** Limit of one step, and of one evaluation. */
const MOST_SAMPLES = 2 ** 20;
const MOST_TOKENS = 2 ** 32;
/** Limit of a model with fresh weights: 8 GiB in float32. */
const MOST_PARAMETERS = 2 ** 31;

/** Throws InputError with the first rule that is broken. */
export function checkTrainRules(config: TrainConfig, source: string): void {
  const { data, rollout, actor, algorithm } = config;
  const fail = (message: string): never => {
    throw new InputError(`${source}: ${message}`);
  };
  if (!(actor.clipRatioC > 1)) fail(`clipRatioC is ${actor.clipRatioC}; the dual-clip bound must be above 1, e.g. 3.`);
  checkName(config.name, source);
  checkAmounts(config, fail);
  if (rollout.valKwargs.temperature > 0 && rollout.valKwargs.temperature < TEMPERATURE[0])
    fail(
      `rollout.valKwargs.temperature is ${rollout.valKwargs.temperature}; allowed: 0, or at least ${TEMPERATURE[0]}.`,
    );
  if (data.trainBatchSize % actor.ppoMiniBatchSize !== 0) {
    fail(
      `actor.ppoMiniBatchSize is ${actor.ppoMiniBatchSize} prompts, which does not divide data.trainBatchSize ` +
        `${data.trainBatchSize}; the nearest that do are ${nearestDivisors(data.trainBatchSize, actor.ppoMiniBatchSize)}.`,
    );
  }
  const sequences = actor.ppoMiniBatchSize * rollout.n;
  const micro = actor.ppoMicroBatchSizePerGpu;
  if (micro !== undefined && sequences % micro !== 0) {
    fail(
      `actor.ppoMicroBatchSizePerGpu is ${micro} sequences, which does not divide the mini-batch of ${actor.ppoMiniBatchSize} ` +
        `prompts x ${rollout.n} samples = ${sequences}; the nearest that do are ${nearestDivisors(sequences, micro)}.`,
    );
  }
  const longest = data.maxPromptLength + data.maxResponseLength;
  if (actor.ppoMaxTokenLenPerGpu < longest) {
    fail(
      `actor.ppoMaxTokenLenPerGpu is ${actor.ppoMaxTokenLenPerGpu} tokens, but one sequence may take data.maxPromptLength + ` +
        `data.maxResponseLength = ${longest}; raise it to at least that.`,
    );
  }
  checkAdapters(config, fail);
  if (rollout.n < 2 && ['rloo', 'grpo_passk', 'turn_loo'].includes(algorithm.advEstimator)) {
    fail(
      `rollout.n is ${rollout.n}, but advEstimator "${algorithm.advEstimator}" compares samples; set it to 2 or more.`,
    );
  }
  if (algorithm.useKlInReward && actor.useKlLoss) {
    fail('algorithm.useKlInReward and actor.useKlLoss are both on, which counts the KL twice; switch one off.');
  }
  const { judge, rubric } = config.reward;
  if (judge.path !== undefined && judge.checkpoint !== undefined)
    fail('reward.judge.path and reward.judge.checkpoint both name a judge; leave one of them out.');
  const isReference = judge.path === undefined && judge.checkpoint === undefined;
  if (rubric !== undefined && isReference && judge.maxPromptLength > actor.ppoMaxTokenLenPerGpu)
    fail(
      `reward.judge.maxPromptLength is ${judge.maxPromptLength} tokens, but the reference judges in passes of ` +
        `actor.ppoMaxTokenLenPerGpu = ${actor.ppoMaxTokenLenPerGpu}; lower the one or raise the other.`,
    );
  if (config.reward.overlongBuffer.len > data.maxResponseLength) {
    fail(
      `reward.overlongBuffer.len is ${config.reward.overlongBuffer.len} tokens; allowed: up to data.maxResponseLength, ` +
        `${data.maxResponseLength}.`,
    );
  }
  if (algorithm.replayBufferSize > 0 && (algorithm.filterGroups.enable || algorithm.advEstimator === 'rae'))
    fail(
      `algorithm.replayBufferSize is ${algorithm.replayBufferSize}, which goes together neither with algorithm.filterGroups, ` +
        'which redraws the groups that it would replace, nor with advEstimator "rae", which learns from them; set it to 0 or ' +
        'use another recipe.',
    );
  checkCorrection(config, source);
  const { constrainToolCalls, enable, format } = rollout.multiTurn;
  if (enable && constrainToolCalls) callFormatOf(toolParserOf(format));
  if (actor.policyLoss.lossMode === 'vespo' && algorithm.rolloutCorrection.rolloutIs === 'sequence')
    fail(
      'algorithm.rolloutCorrection.rolloutIs is "sequence", but VESPO multiplies the weights of tokens up to one of the ' +
        'sequence itself; set it to "token", or leave it out.',
    );
  const changesScore = [
    algorithm.useKlInReward && 'algorithm.useKlInReward',
    config.reward.overlongBuffer.len > 0 && 'reward.overlongBuffer.len',
    algorithm.lengthPenalty.type !== 'none' && 'algorithm.lengthPenalty.type',
  ].filter((key) => key !== false);
  if (algorithm.advEstimator === 'gdpo' && changesScore.length > 0)
    fail(
      `algorithm.advEstimator is "gdpo", which reads the task's single rewards and not the score that ` +
        `${changesScore.join(' and ')} would change; leave that out, or use advEstimator "grpo".`,
    );
  if (algorithm.gdpoRewardWeights && algorithm.gdpoRewardWeights.length !== (algorithm.gdpoRewardKeys?.length ?? 0)) {
    fail(
      `algorithm.gdpoRewardWeights has ${algorithm.gdpoRewardWeights.length} weights for ` +
        `${algorithm.gdpoRewardKeys?.length ?? 0} gdpoRewardKeys; give one for each key.`,
    );
  }
  if (algorithm.gdpoRewardWeights && Object.keys(config.reward.weights).length > 0)
    fail('algorithm.gdpoRewardWeights and reward.weights both give weights of named rewards; leave one of them out.');
  if (config.trainer.refUpdateFreq > 0 && !actor.useKlLoss && !algorithm.useKlInReward)
    fail(
      'trainer.refUpdateFreq refreshes the reference, but no KL term uses one; set actor.useKlLoss or leave it out.',
    );
  if (config.trainer.resumeMode === 'resume_path' && config.trainer.resumeFromPath === undefined)
    fail(
      'trainer.resumeMode is "resume_path", but trainer.resumeFromPath is missing; set it to a checkpoint or run folder, or ' +
        'use resumeMode "auto".',
    );
  if (config.trainer.greaterIsBetter !== undefined && config.trainer.metricForBestModel === undefined)
    fail(
      'trainer.greaterIsBetter says how trainer.metricForBestModel compares, which is not set; set it or leave both out.',
    );
  if (actor.entropyCoeffMin > actor.entropyCoeffMax)
    fail(
      `actor.entropyCoeffMin is ${actor.entropyCoeffMin}, above entropyCoeffMax ${actor.entropyCoeffMax}; swap them.`,
    );
  if (rollout.partialRollout && rollout.overSampleRate === 0)
    fail(
      'rollout.partialRollout carries over what rollout.overSampleRate leaves, which is 0; set it above 0, say 0.25.',
    );
  if (rollout.overSampleRate > 0 && (algorithm.filterGroups.enable || algorithm.advEstimator === 'remax'))
    fail(
      `rollout.overSampleRate is ${rollout.overSampleRate}, which goes together neither with algorithm.filterGroups ` +
        'nor with advEstimator "remax"; set it to 0 or use another recipe.',
    );
  checkPipeline(config, fail);
  checkLength(config, fail);
  const updates = config.trainer.totalTrainingSteps * (data.trainBatchSize / actor.ppoMiniBatchSize) * actor.ppoEpochs;
  checkOptimizer('actor.optim', actor.optim, source);
  checkWarmup('actor.optim', actor.optim, updates, source);
}

/** Refuses keys that the optimizer would not read. */
function checkOptimizer(part: string, { optimizer, momentum, nesterov }: OptimizerKeys, source: string): void {
  const fail = (message: string): never => {
    throw new InputError(`${source}: ${message}`);
  };
  const key = momentum !== undefined ? 'momentum' : nesterov !== undefined ? 'nesterov' : undefined;
  if (key && (optimizer === 'AdamW' || optimizer === 'SignSGD'))
    fail(
      `${part}.${key} is set, but ${part}.optimizer is ${optimizer}, which has none; leave it out, or use SGD or Muon.`,
    );
  if (optimizer === 'SGD' && nesterov && !momentum)
    fail(`${part}.nesterov is true, but SGD has no momentum; set ${part}.momentum, say 0.9.`);
}

/** Samples and tokens that a step or an evaluation keeps: a run refuses what would end it in its first step. */
function checkAmounts({ data, rollout }: TrainConfig, fail: (message: string) => never): void {
  const amounts = [
    ['data.trainBatchSize', data.trainBatchSize, 'rollout.n', rollout.n],
    ['data.valMaxSamples', data.valMaxSamples, 'rollout.valKwargs.n', rollout.valKwargs.n],
  ] as const;
  for (const [key, prompts, each, n] of amounts)
    if (prompts * n > MOST_SAMPLES)
      fail(`${key} x ${each} is ${prompts} x ${n} = ${prompts * n} samples; at most ${MOST_SAMPLES} are allowed.`);
  const tokens = data.trainBatchSize * rollout.n * (data.maxPromptLength + data.maxResponseLength);
  if (tokens > MOST_TOKENS)
    fail(
      `data.trainBatchSize x rollout.n x (data.maxPromptLength + data.maxResponseLength) is ${tokens} tokens a step; at most ` +
        `${MOST_TOKENS} are allowed, which 32 bits count.`,
    );
}

/** What the asynchronous pipelines do not go together with. */
function checkPipeline(config: TrainConfig, fail: (message: string) => never): void {
  const { trainer, asyncTraining, rollout, algorithm, engine } = config;
  const { pipeline, testFreq } = trainer;
  if (pipeline === 'on-policy') return;
  const other = [
    rollout.overSampleRate > 0 && 'rollout.overSampleRate, since groups are under way from step to step anyhow',
    algorithm.replayBufferSize > 0 &&
      'algorithm.replayBufferSize, whose groups are older than any that it lets through',
    algorithm.advEstimator === 'remax' && 'advEstimator "remax", whose greedy answers would be of other weights',
    engine === 'tfjs' && 'engine "tfjs", which cannot generate while it trains',
  ].find((reason) => reason !== false);
  if (other)
    fail(`trainer.pipeline is "${pipeline}", which does not go together with ${other}; leave one of them out.`);
  const every = pipeline === 'fully-async' ? asyncTraining.triggerParameterSyncStep : 1;
  if (testFreq > 0 && testFreq % every !== 0)
    fail(
      `trainer.testFreq is ${testFreq}, but rollout gets the weights every asyncTraining.triggerParameterSyncStep = ${every} steps, ` +
        `and an evaluation is of those; the nearest that works is ${nearestMultiple(testFreq, every)}.`,
    );
}

/** When a run ends, and which problems it draws from. */
function checkLength({ data, trainer }: TrainConfig, fail: (message: string) => never): void {
  const { stopWhen } = trainer;
  if (stopWhen && stopWhen.atLeast === undefined && stopWhen.atMost === undefined)
    fail(`trainer.stopWhen names ${stopWhen.metric} without a value; set atLeast or atMost.`);
  if (stopWhen?.metric.startsWith('val-') && trainer.testFreq <= 0)
    fail(
      `trainer.stopWhen reads ${stopWhen.metric}, but trainer.testFreq is ${trainer.testFreq}, so nothing is evaluated on the ` +
        'way; set it, say to 10.',
    );
  if (data.difficulty.hard > data.difficulty.easy)
    fail(`data.difficulty.hard is ${data.difficulty.hard}, above easy ${data.difficulty.easy}; swap them.`);
}

/** Thresholds are texts that only their readers understand, so they read them once here, on one token. */
function checkCorrection(config: TrainConfig, source: string): void {
  try {
    rolloutCorrection(correctionSettings(config), { oldLogp: [[0]], rolloutLogp: [[0]], masks: [[1]] });
  } catch (error) {
    if (error instanceof RangeError) throw new InputError(`${source}: algorithm.rolloutCorrection: ${error.message}`);
    throw error;
  }
}

/** Refuses settings that LoRA and gradient checkpointing do not go together with. */
function checkAdapters({ engine, model, trainer }: TrainConfig, fail: (message: string) => never): void {
  const adapters = model.loraRank > 0 || model.loraAdapterPath !== undefined;
  if (engine === 'tfjs' && adapters)
    fail('engine is "tfjs", which trains every weight and no adapters; use engine: wgsl, or model.loraRank: 0.');
  if (engine === 'tfjs' && model.enableGradientCheckpointing)
    fail(
      'engine is "tfjs", whose tape keeps every activation; use engine: wgsl, or enableGradientCheckpointing: false.',
    );
  if (engine === 'tfjs' && model.dtype !== 'float32')
    fail('engine is "tfjs", which computes in float32; use engine: wgsl, or model.dtype: float32.');
  if (!adapters && model.quantization !== 'none')
    fail(
      `model.quantization is "${model.quantization}", which freezes the weights; set model.loraRank, say 16, or leave it out.`,
    );
  if (adapters && trainer.refUpdateFreq > 0)
    fail(
      'trainer.refUpdateFreq is set, but with adapters the reference is the frozen base itself; leave it out, or model.loraRank: 0.',
    );
}

export function checkSftRules(config: SftConfig, source: string): void {
  const { model, data, optim, trainer } = config;
  checkName(config.name, source);
  const { hiddenSize: C, intermediateSize: F, numHiddenLayers } = model;
  const parameters = model.vocabSize * C + numHiddenLayers * (4 * C * C + 3 * C * F);
  if (model.path === undefined && parameters > MOST_PARAMETERS)
    throw new InputError(
      `${source}: model has about ${parameters} parameters; fresh weights may be up to ${MOST_PARAMETERS}: lower ` +
        'model.hiddenSize, model.intermediateSize, model.numHiddenLayers or model.vocabSize.',
    );
  if (model.hiddenSize % (2 * model.numAttentionHeads) !== 0) {
    throw new InputError(
      `${source}: model.hiddenSize is ${model.hiddenSize}, which ${model.numAttentionHeads} heads do not cut into even ` +
        `parts; the nearest that works is ${nearestMultiple(model.hiddenSize, 2 * model.numAttentionHeads)}.`,
    );
  }
  if (model.numAttentionHeads % model.numKeyValueHeads !== 0) {
    throw new InputError(
      `${source}: model.numKeyValueHeads is ${model.numKeyValueHeads}, which does not divide numAttentionHeads ` +
        `${model.numAttentionHeads}; the nearest that do are ${nearestDivisors(model.numAttentionHeads, model.numKeyValueHeads)}.`,
    );
  }
  if (data.maxLength > model.maxPositionEmbeddings || data.maxLength > data.maxTokenLenPerGpu) {
    throw new InputError(
      `${source}: data.maxLength is ${data.maxLength} tokens; allowed: up to model.maxPositionEmbeddings ` +
        `${model.maxPositionEmbeddings} and data.maxTokenLenPerGpu ${data.maxTokenLenPerGpu}.`,
    );
  }
  checkOptimizer('optim', optim, source);
  checkWarmup('optim', optim, trainer.totalTrainingSteps, source);
}

/** The derived numbers a run prints. */
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

/** "4 and 8": the divisors of `total` next to `size`; one where `size` is beyond the ends. */
export function nearestDivisors(total: number, size: number): string {
  let [below, above]: (number | undefined)[] = [undefined, undefined];
  // Divisors come in pairs, of which one is at most the root.
  for (let d = 1; d * d <= total; d++)
    for (const divisor of total % d === 0 ? [d, total / d] : []) {
      if (divisor < size) below = Math.max(divisor, below ?? divisor);
      if (divisor > size) above = Math.min(divisor, above ?? divisor);
    }
  return [below, above].filter((d) => d !== undefined).join(' and ');
}

function nearestMultiple(value: number, of: number): number {
  return Math.max(1, Math.round(value / of)) * of;
}

/** Room for what is put behind a name: file systems take 255 bytes. */
const LONGEST_NAME = 128;

/** A run folder has this name, so it must be one on every system. Throws InputError. */
export function checkName(name: string, source: string): void {
  if (/^[\w-][\w.-]*$/.test(name) && name.length <= LONGEST_NAME) return;
  throw new InputError(
    `${source}: name is ${show(name)}; allowed: letters, digits, ., _ and -, not starting with a dot, at most ${LONGEST_NAME}.`,
  );
}

function checkWarmup(
  part: string,
  optim: { lrSchedulerType: string; lrWarmupSteps: number; lrWarmupStepsRatio: number },
  updates: number,
  source: string,
): void {
  if (optim.lrSchedulerType === 'constant' || updates === 0 || updates === Infinity) return;
  const warmup = warmupSteps(optim, updates);
  if (updates > warmup) return;
  const [key, allowed] =
    optim.lrWarmupSteps > 0
      ? (['lrWarmupSteps', `the run's ${updates} updates`] as const)
      : (['lrWarmupStepsRatio', '1'] as const);
  throw new InputError(
    `${source}: ${part}.${key} is ${optim[key]}, but a ${optim.lrSchedulerType} schedule needs it below ${allowed}.`,
  );
}
