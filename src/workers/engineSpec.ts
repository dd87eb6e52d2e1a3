/**
 * Specification of an engine and its sizes. Contains no engine code, so that a page can describe an engine without
 * loading it.
 */

import type { PackedFormat } from '../gpu/packedFormat.ts';
import type { TrainConfig } from '../grpo/config/types.ts';
import { pipelineOf } from '../grpo/pipeline/settings.ts';
import type { ModelConfig } from '../model/config.ts';
import type { TensorMap } from '../model/engine.ts';
import { type LoraConfig, loraModules } from '../model/lora/config.ts';
import type { KernelTuning } from '../model/kernels/tuning.ts';
import { optimizerOf, type OptimizerSpec } from '../model/optimizer/spec.ts';
import type { Weights } from '../model/weights/load.ts';
import type { StoredFormats } from '../model/weights/plan.ts';
import type { SpeculativeOptions } from '../rollout/server/tokenSource.ts';
import type { DecoderSizes } from '../rollout/decode/decoder.ts';
import type { AsyncScheduling, KvCachePolicy, Preemption } from '../rollout/server/server.ts';

/** Everything that an engine is created from. Plain data, so that it can be sent to a worker. */
export interface EngineSpec {
  /** wgsl = our own kernels; tfjs = gradients by autodiff, for verification (entry `webgrpo/tfjs`). */
  engine: 'wgsl' | 'tfjs';
  /** The model's sizes. */
  config: ModelConfig;
  /** Weights, or a source that is read piece by piece. A source cannot be sent to a worker; a map can. */
  weights: Weights;
  /** Parsed tokenizer.json. */
  tokenizerJson: unknown;
  /** Parsed tokenizer_config.json. */
  tokenizerConfigJson: unknown;
  /** Variables for the chat template; see ChatTokenizer. */
  chatTemplateKwargs?: Record<string, unknown>;
  /** Rows of the largest micro-batch. */
  maxTokenLen: number;
  /** Longest sequence, prompt and response. */
  maxPositions: number;
  /** Sizes of rollout. Undefined: no rollout (supervised training). */
  rollout?: DecoderSizes;
  /**
   * Weights that rollout samples from. shared = the buffers that training writes; copy = a second set on the same
   * device; stream = another device: this one trains and has no rollout, or, if `use` is 'generate', is the other one
   * (`splitSpecs`). Only for engine wgsl. Default: shared.
   */
  rolloutWeights?: 'shared' | 'copy' | 'stream' | undefined;
  /**
   * Sizes of a judge's rollout. It samples with the weights of judgeModel, or by default of the reference, which needs
   * withReference.
   */
  judge?: DecoderSizes;
  /** Longest prompt plus reply of a rubric's judge. Undefined: no rubric is judged on this device. */
  judgePositions?: number;
  /** A judge with its own frozen weights. */
  judgeModel?: JudgeModel;
  /** Samples that lose their slots to a waiting request. Default: 'parked'. */
  preemption?: Preemption;
  /** Treatment of cached contexts of samples in flight when the weights change. Default: 'recompute'. */
  kvCache?: KvCachePolicy;
  /** True to start a pass before the last one was read. Default: 'auto'. */
  asyncScheduling?: AsyncScheduling;
  /** True to schedule by counts and not by the clock; see RolloutOptions. */
  repeatable?: boolean;
  /** Settings of speculative decoding. Default: plain decoding. */
  speculative?: SpeculativeOptions;
  /** True to keep a frozen copy of the start weights for KL terms. */
  withReference?: boolean;
  /** Maximum device memory in MiB; more throws OutOfMemoryError. Default: what the device has. */
  maxMemoryMib?: number;
  /** Use that memory is planned for. 'score' = only log-probs, 'generate' = only rollout. Default: 'train'. */
  use?: 'train' | 'score' | 'generate';
  /**
   * True if requests use penalties, a minimum length or constrained calls, which need additional buffers. For the
   * memory plan.
   */
  adjustedDraws?: boolean;
  /**
   * Adapters to train instead of the weights; the reference is then the base with adapters off. Only for engine wgsl.
   */
  lora?: LoraConfig;
  /** Initial adapters by PEFT's names. Default: new ones. */
  adapter?: TensorMap;
  /** True to store no activations of layers and recompute them in the backward pass. */
  enableGradientCheckpointing?: boolean;
  /** Default: AdamW. */
  optimizer?: OptimizerSpec;
  /** True to time rollout's passes by the GPU's clock, if the adapter has timestamps. */
  gpuTimes?: boolean;
  /** Choice of kernels. Does not change any bit of a result. Default: 'auto'. */
  kernelTuning?: KernelTuning;
  /** Packed storage of matrices that are not trained. */
  weightFormat?: PackedFormat;
  /** Packed formats of tensors in the file of the weights. Those tensors stay packed if they are not trained. */
  packed?: StoredFormats;
  /**
   * Stores activations, the KV cache and the weights that passes read as 16-bit floats if the adapter has shader-f16,
   * otherwise as 32-bit. Weights that are trained also have a 32-bit copy. Only for engine wgsl.
   */
  dtype?: 'float16' | undefined;
}

/** Another model on the same device, with its own tokenizer. */
export interface JudgeModel {
  config: ModelConfig;
  weights: Weights;
  tokenizerJson: unknown;
  tokenizerConfigJson: unknown;
}

/** Part of a spec that a device needs; the tokenizers stay with the controller. */
export type DeviceSpec = Omit<
  EngineSpec,
  'tokenizerJson' | 'tokenizerConfigJson' | 'chatTemplateKwargs' | 'judgeModel'
> & { judgeModel?: Pick<JudgeModel, 'config' | 'weights'> };

/** Returns a sentence for the user if the adapter does not support the requested dtype; undefined otherwise. */
export function dtypeNote(asked: Pick<EngineSpec, 'dtype'>, used: Pick<EngineSpec, 'dtype'>): string | undefined {
  if (asked.dtype === used.dtype) return undefined;
  return 'float16 was requested, but this adapter has no shader-f16: everything stays in float32';
}

/** Returns the adapters of a training config; undefined if every weight is trained. */
export function loraOf({ model, seed }: TrainConfig): LoraConfig | undefined {
  const { loraRank: rank, loraAlpha: alpha, loraDropout: dropout, useRslora, targetModules } = model;
  return rank === 0 ? undefined : { rank, alpha, dropout, useRslora, targetModules: loraModules(targetModules), seed };
}

const adjustsDraws = (rollout: TrainConfig['rollout']): boolean =>
  rollout.repetitionPenalty !== 1 ||
  rollout.presencePenalty !== 0 ||
  rollout.frequencyPenalty !== 0 ||
  rollout.minNewTokens > 0 ||
  (rollout.multiTurn.enable && rollout.multiTurn.constrainToolCalls);

/** Judges that run on our own engine instead of transformers.js: one that returns a number, and one of a rubric. */
function ownJudges({ judge, rubric }: TrainConfig['reward']): { says: boolean; decides: boolean } {
  const own = judge.path === undefined;
  return { says: own && judge.weight !== 0, decides: own && rubric !== undefined };
}

/** Path of a judge model on the engine next to the policy. Undefined if the reference judges, or without a judge. */
export function judgeCheckpoint({ reward }: TrainConfig): string | undefined {
  const { says, decides } = ownJudges(reward);
  return says || decides ? reward.judge.checkpoint : undefined;
}

/** Every sample is a separate prompt. */
function judgeSizes({ maxNumSeqs, maxNewTokens, maxPromptLength }: TrainConfig['reward']['judge']): DecoderSizes {
  const maxBatchedTokens = Math.max(1024, maxPromptLength);
  return { maxNumSeqs, slotCapacity: maxNewTokens, maxPrompts: maxNumSeqs, maxPromptLength, maxBatchedTokens };
}

/**
 * True if the pipeline needs a copy of the weights: on one device, rollout that runs during training must not see them
 * change.
 */
const makesCopy = (config: TrainConfig): boolean =>
  config.trainer.placement === 'colocated' && pipelineOf(config).isAsync;

/** Returns the part of an engine's spec that follows from a training config: sizes, adapters, memory. */
export function engineSizes(trainConfig: TrainConfig) {
  const { data, rollout, actor, algorithm, model, engine, reward, trainer } = trainConfig;
  const lora = loraOf(trainConfig);
  const maxPositions = data.maxPromptLength + data.maxResponseLength;
  const { enable, verifyRows, ...speculative } = rollout.speculative;
  const { says, decides } = ownJudges(reward);
  const referenceJudges = (says || decides) && reward.judge.checkpoint === undefined;
  return {
    engine,
    maxTokenLen: actor.ppoMaxTokenLenPerGpu,
    maxPositions,
    withReference: actor.useKlLoss || algorithm.useKlInReward || referenceJudges,
    rollout: {
      maxNumSeqs: rollout.maxNumSeqs,
      slotCapacity: data.maxResponseLength,
      maxPrompts: rollout.maxNumSeqs,
      maxPromptLength: data.maxPromptLength,
      maxBatchedTokens: Math.max(2048, maxPositions),
      ...(enable && verifyRows !== undefined && { verifyRows }),
    },
    ...(says && { judge: judgeSizes(reward.judge) }),
    ...(decides && { judgePositions: reward.judge.maxPromptLength }),
    ...(makesCopy(trainConfig) && { rolloutWeights: 'copy' as const }),
    preemption: rollout.preemption,
    ...(rollout.checkpointEngine.kvCache === 'keep' && { kvCache: 'keep' as const }),
    asyncScheduling: rollout.asyncScheduling,
    ...(rollout.overSampleRate > 0 && { repeatable: true }), // the samples that end first are trained on
    ...(enable && { speculative }),
    ...(model.maxMemoryMib !== undefined && { maxMemoryMib: model.maxMemoryMib }),
    ...(adjustsDraws(rollout) && { adjustedDraws: true }),
    ...(lora && { lora }),
    ...(Object.keys(data.chatTemplateKwargs).length > 0 && { chatTemplateKwargs: data.chatTemplateKwargs }),
    ...(trainer.profileGpu && { gpuTimes: true }),
    ...(trainer.kernelTuning !== 'auto' && { kernelTuning: trainer.kernelTuning }),
    ...(model.quantization !== 'none' && { weightFormat: model.quantization }),
    ...(model.dtype === 'float16' && { dtype: 'float16' as const }),
    ...(actor.optim.optimizer !== 'AdamW' && { optimizer: optimizerOf(actor.optim) }),
    ...(model.enableGradientCheckpointing && { enableGradientCheckpointing: true }),
  };
}

/** Longest conversation with the model, in multiples of a sample's length. */
const CONVERSATION = 4;

/**
 * Returns the part of an engine's spec for an engine that only answers questions, one at a time. `rollout` generates
 * with weights that can be imported during training. With `start`, `judge` generates with the start weights.
 */
export function answerSizes(trainConfig: TrainConfig, model: ModelConfig, { start }: { start: boolean }) {
  const { maxTokenLen, lora, chatTemplateKwargs, kernelTuning, weightFormat, dtype, adjustedDraws, maxPositions } =
    engineSizes(trainConfig);
  const positions = Math.min(model.maxPositionEmbeddings, CONVERSATION * maxPositions);
  const { maxResponseLength } = trainConfig.data;
  const maxPromptLength = positions - maxResponseLength;
  const sizes = {
    maxNumSeqs: 1,
    slotCapacity: maxResponseLength,
    maxPrompts: 1,
    maxPromptLength,
    maxBatchedTokens: positions,
  };
  return {
    engine: 'wgsl' as const,
    use: 'generate' as const,
    maxTokenLen,
    maxPositions: positions,
    rollout: sizes,
    ...(start && { withReference: true, judge: sizes }),
    ...(lora && { lora }),
    ...(chatTemplateKwargs && { chatTemplateKwargs }),
    ...(kernelTuning && { kernelTuning }),
    ...(weightFormat && { weightFormat }),
    ...(dtype && { dtype }),
    ...(adjustedDraws && { adjustedDraws }),
  };
}
