/** Rules that span keys. Sizes that do not divide are refused with the nearest that do; see DESIGN "Batch sizes". */

import { InputError } from '../../errors.ts';
import type { TrainConfig } from './types.ts';
import { correctionSettings } from '../correction/settings.ts';
import { rolloutCorrection } from '../correction/correct.ts';
import type { SftConfig } from './sftSchema.ts';

/** Throws InputError with the first rule that is broken. */
export function checkTrainRules(config: TrainConfig, source: string): void {
  const { data, rollout, actor, algorithm } = config;
  const fail = (message: string): never => {
    throw new InputError(`${source}: ${message}`);
  };
  if (!(actor.clipRatioC > 1)) fail(`clipRatioC is ${actor.clipRatioC}; the dual-clip bound must be above 1, e.g. 3.`);
  checkName(config.name, source);
  if (data.trainBatchSize % actor.ppoMiniBatchSize !== 0) {
    fail(
      `actor.ppoMiniBatchSize is ${actor.ppoMiniBatchSize} prompts, which does not divide data.trainBatchSize ` +
        `${data.trainBatchSize}; the nearest that do are ${nearestDivisors(data.trainBatchSize, actor.ppoMiniBatchSize)}.`,
    );
  }
  const sequences = actor.ppoMiniBatchSize * rollout.n;
  const micro = actor.ppoMicroBatchSize;
  if (micro !== undefined && sequences % micro !== 0) {
    fail(
      `actor.ppoMicroBatchSize is ${micro} sequences, which does not divide the mini-batch of ${actor.ppoMiniBatchSize} ` +
        `prompts x ${rollout.n} samples = ${sequences}; the nearest that do are ${nearestDivisors(sequences, micro)}.`,
    );
  }
  const longest = data.maxPromptLength + data.maxResponseLength;
  if (actor.maxTokenLen < longest) {
    fail(
      `actor.maxTokenLen is ${actor.maxTokenLen} tokens, but one sequence may take data.maxPromptLength + ` +
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
  if ((algorithm.overlongBuffer.len ?? 0) > data.maxResponseLength) {
    fail(
      `algorithm.overlongBuffer.len is ${algorithm.overlongBuffer.len} tokens; allowed: up to data.maxResponseLength, ` +
        `${data.maxResponseLength}.`,
    );
  }
  checkCorrection(config, source);
  const changesScore = [
    algorithm.useKlInReward && 'algorithm.useKlInReward',
    (algorithm.overlongBuffer.len ?? 0) > 0 && 'algorithm.overlongBuffer.len',
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
  const updates = config.trainer.totalTrainingSteps * (data.trainBatchSize / actor.ppoMiniBatchSize) * actor.ppoEpochs;
  checkWarmup('actor.optim', actor.optim, updates, source);
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
  if (data.maxLength > model.maxPositionEmbeddings || data.maxLength > data.maxTokenLen) {
    throw new InputError(
      `${source}: data.maxLength is ${data.maxLength} tokens; allowed: up to model.maxPositionEmbeddings ` +
        `${model.maxPositionEmbeddings} and data.maxTokenLen ${data.maxTokenLen}.`,
    );
  }
  checkWarmup('optim', optim, trainer.totalTrainingSteps, source);
}

/** The derived numbers a run prints, as in DESIGN "Batch sizes". */
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
  const divisors = Array.from({ length: total }, (_, i) => i + 1).filter((d) => total % d === 0);
  const below = divisors.filter((d) => d < size).at(-1);
  const above = divisors.find((d) => d > size);
  return [below, above].filter((d) => d !== undefined).join(' and ');
}

function nearestMultiple(value: number, of: number): number {
  return Math.max(1, Math.round(value / of)) * of;
}

/** A run folder has this name, so it must be one on every system. */
function checkName(name: string, source: string): void {
  if (/^[\w-][\w.-]*$/.test(name)) return;
  throw new InputError(`${source}: name is "${name}"; allowed: letters, digits, ., _ and -, not starting with a dot.`);
}

function checkWarmup(
  part: string,
  optim: { lrScheduler: string; lrWarmupSteps: number },
  updates: number,
  source: string,
): void {
  if (optim.lrScheduler !== 'cosine' || updates === 0 || updates > optim.lrWarmupSteps) return;
  throw new InputError(
    `${source}: ${part}.lrWarmupSteps is ${optim.lrWarmupSteps}, but a cosine schedule needs it below the run's ${updates} updates.`,
  );
}
