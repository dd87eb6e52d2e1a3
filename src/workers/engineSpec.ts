/**
 * Specification of an engine, and how its sizes follow from a config. Contains no engine code, so that a page can describe an engine
 * without loading one.
 */

import type { PackedFormat } from '../gpu/packedFormat.ts';
import type { TrainConfig } from '../grpo/config/types.ts';
import type { Lowered } from '../grpo/types.ts';
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
import type { KvCachePolicy, Preemption } from '../rollout/server/server.ts';

/** All settings with which an engine is created. Plain data, so that it can be sent to a worker. */
export interface EngineSpec {
  /**
   * Engine to use. wgsl = the kernels of this repository; tfjs = TensorFlow.js with gradients by autodiff, for verification (entry
   * `webgrpo/tfjs`).
   */
  engine: 'wgsl' | 'tfjs';
  /** The model's sizes. */
  config: ModelConfig;
  /** Weights as a map of tensors, or a source from which they are read piece by piece. A map can be sent to a worker, a source cannot. */
  weights: Weights;
  /** Parsed tokenizer.json. */
  tokenizerJson: unknown;
  /** Parsed tokenizer_config.json. */
  tokenizerConfigJson: unknown;
  /** Variables for the chat template; see ChatTokenizer. */
  chatTemplateKwargs?: Record<string, unknown>;
  /** Number of rows of the largest micro-batch. */
  maxTokenLen: number;
  /** Length of the longest sequence: prompt and response together. */
  maxPositions: number;
  /** Sizes of the rollout server. Undefined: no rollout (supervised training). */
  rollout?: DecoderSizes;
  /**
   * Weights that rollout samples from. shared = the buffers that training writes. copy = a second set on the same device. stream = weights
   * on another device, which needs two engines (`splitSpecs`): one only trains, the other, with `use` 'generate', only generates. Only for
   * engine wgsl. Default: shared.
   */
  rolloutWeights?: 'shared' | 'copy' | 'stream' | undefined;
  /**
   * Sizes of the rollout server of a judge. The judge samples with the weights of judgeModel. Without judgeModel it samples with those of
   * the reference, which needs withReference.
   */
  judge?: DecoderSizes;
  /** Maximum number of tokens of a prompt and its reply for a rubric's judge. Undefined: no rubric is judged on this device. */
  judgePositions?: number;
  /** A separate model as judge, with its own frozen weights. */
  judgeModel?: JudgeModel;
  /** Samples that can lose their slots while a request waits. Default: 'parked'. */
  preemption?: Preemption;
  /** Treatment of the cached keys and values of samples in flight when the weights change. Default: 'recompute'. */
  kvCache?: KvCachePolicy;
  /** True to schedule by counts alone, not by measured times; see RolloutOptions. */
  repeatable?: boolean;
  /** Settings of speculative decoding. Default: plain decoding. */
  speculative?: SpeculativeOptions;
  /** True to keep a frozen copy of the start weights as the reference for KL terms. */
  withReference?: boolean;
  /** Changes of settings that together remove the reference, for the advice of an error. Default: no advice. */
  withoutReference?: string;
  /** Maximum device memory in MiB. An allocation beyond it throws OutOfMemoryError. Default: the memory of the device. */
  maxMemoryMib?: number;
  /** Sizes of the run's other engines on the same adapter. The limit of memory is for all of them together. */
  otherEngines?: readonly OtherEngine[];
  /** Settings of the config that are lowered if the engine would not fit. */
  lowerToFit?: readonly string[];
  /** Settings that `fitted` has lowered already. */
  lowered?: Lowered;
  /** Use for which memory is planned: 'score' = only log-probs, 'generate' = only rollout, 'train' = everything. Default: 'train'. */
  use?: 'train' | 'score' | 'generate';
  /** True if requests use penalties, a minimum length or constrained calls. The memory plan then includes the buffers for these. */
  adjustedDraws?: boolean;
  /** Adapters to train instead of the weights. The reference is then the base model without adapters. Only for engine wgsl. */
  lora?: LoraConfig;
  /** Initial weights of the adapters, by PEFT's names. Default: new ones. */
  adapter?: TensorMap;
  /** True to recompute the activations of layers in the backward pass instead of storing them. */
  enableGradientCheckpointing?: boolean;
  /** Default: AdamW. */
  optimizer?: OptimizerSpec;
  /** True to time the passes of rollout by the GPU's clock, if the adapter has timestamps. */
  gpuTimes?: boolean;
  /** How kernels are chosen. The choice does not change any bit of a result. Default: 'auto'. */
  kernelTuning?: KernelTuning;
  /** Packed format in which matrices that are not trained are stored. */
  weightFormat?: PackedFormat;
  /** Packed formats of tensors in the file with the weights. These tensors stay packed if they are not trained. */
  packed?: StoredFormats;
  /**
   * 'float16' stores activations, the KV cache and the weights that passes read as 16-bit floats if the adapter has shader-f16, otherwise
   * as 32-bit floats. Weights that are trained also have a 32-bit copy. Only for engine wgsl.
   */
  dtype?: 'float16' | undefined;
}

/** A judge model on the same device as the policy, with its own tokenizer. */
export interface JudgeModel {
  config: ModelConfig;
  weights: Weights;
  tokenizerJson: unknown;
  tokenizerConfigJson: unknown;
}

/** The part of a spec that the device's thread needs. The tokenizers stay with the controller. */
export type DeviceSpec = Omit<
  EngineSpec,
  'tokenizerJson' | 'tokenizerConfigJson' | 'chatTemplateKwargs' | 'judgeModel'
> & { judgeModel?: Pick<JudgeModel, 'config' | 'weights'> };

/** Names of the fields on which an engine's memory depends, except for those of the models. */
const SIZE_FIELDS = [
  'maxTokenLen',
  'maxPositions',
  'rollout',
  'rolloutWeights',
  'judge',
  'judgePositions',
  'withReference',
  'lora',
  'enableGradientCheckpointing',
  'optimizer',
  'adjustedDraws',
  'weightFormat',
  'packed',
  'use',
] as const satisfies readonly (keyof EngineSpec)[];

/** Sizes of another engine of the run, with the same model and dtype. Plain data without weights. */
export type OtherEngine = Pick<EngineSpec, (typeof SIZE_FIELDS)[number]> & { judgeModel?: Pick<JudgeModel, 'config'> };

/** Returns the sizes in the spec of an engine, for `otherEngines` in the spec of another engine. */
export function otherEngineOf(spec: OtherEngine): OtherEngine {
  const { maxTokenLen, maxPositions, judgeModel } = spec;
  const given = SIZE_FIELDS.flatMap((name) => (spec[name] === undefined ? [] : [[name, spec[name]] as const]));
  const judge = judgeModel && { judgeModel: { config: judgeModel.config } };
  return { maxTokenLen, maxPositions, ...Object.fromEntries(given), ...judge };
}

/** Returns a sentence that tells the user that the adapter does not support the requested dtype. Undefined if it does. */
export function dtypeNote(asked: Pick<EngineSpec, 'dtype'>, used: Pick<EngineSpec, 'dtype'>): string | undefined {
  if (asked.dtype === used.dtype) return undefined;
  return 'float16 was requested, but this adapter has no shader-f16: everything stays in float32';
}

/** Returns the settings of the adapters in a training config. Undefined if every weight is trained. */
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

/**
 * Returns which judges run on webgrpo's own engine instead of transformers.js: the one that replies with a number (`says`), and the one of
 * a rubric (`decides`).
 */
function ownJudges({ judge, rubric }: TrainConfig['reward']): { says: boolean; decides: boolean } {
  const own = judge.path === undefined;
  return { says: own && judge.weight !== 0, decides: own && rubric !== undefined };
}

/** Returns the path of the judge model that the engine runs next to the policy. Undefined if the reference judges, or without a judge. */
export function judgeCheckpoint({ reward }: TrainConfig): string | undefined {
  const { says, decides } = ownJudges(reward);
  return says || decides ? reward.judge.checkpoint : undefined;
}

/** Returns the sizes of a judge's rollout server. Each judged sample has its own prompt, so there are as many prompts as slots. */
function judgeSizes({ maxNumSeqs, maxNewTokens, maxPromptLength }: TrainConfig['reward']['judge']): DecoderSizes {
  const maxBatchedTokens = Math.max(1024, maxPromptLength);
  return { maxNumSeqs, slotCapacity: maxNewTokens, maxPrompts: maxNumSeqs, maxPromptLength, maxBatchedTokens };
}

/**
 * True if the pipeline needs a copy of the weights. If rollout runs during training on the same device, its weights must not change
 * meanwhile.
 */
const makesCopy = (config: TrainConfig): boolean =>
  config.trainer.placement === 'colocated' && pipelineOf(config).isAsync;

/** Returns the fields of an engine's spec that a training config determines: sizes, adapters, memory. */
export function engineSizes(trainConfig: TrainConfig) {
  const { data, rollout, actor, algorithm, model, engine, reward, trainer } = trainConfig;
  const lora = loraOf(trainConfig);
  const maxPositions = data.maxPromptLength + data.maxResponseLength;
  const { enable, verifyRows, ...speculative } = rollout.speculative;
  const { says, decides } = ownJudges(reward);
  const referenceJudges = (says || decides) && reward.judge.checkpoint === undefined;
  const ofReference = [
    ...(actor.useKlLoss ? ['actor.useKlLoss=false'] : []),
    ...(algorithm.useKlInReward ? ['algorithm.useKlInReward=false'] : []),
    ...(trainer.refUpdateFreq > 0 ? ['trainer.refUpdateFreq=0'] : []), // needs a KL term
  ];
  return {
    engine,
    maxTokenLen: actor.ppoMaxTokenLenPerGpu,
    maxPositions,
    withReference: actor.useKlLoss || algorithm.useKlInReward || referenceJudges,
    ...(!referenceJudges && ofReference.length > 0 && { withoutReference: ofReference.join(' and ') }),
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
    ...(rollout.overSampleRate > 0 && { repeatable: true }), // the samples that end first are trained on
    ...(enable && { speculative }),
    ...(model.maxMemoryMib !== undefined && { maxMemoryMib: model.maxMemoryMib }),
    ...(model.lowerToFit && { lowerToFit: model.lowerToFit }),
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

/**
 * Like `engineSizes`, for an engine that does not train: without optimizer, reference and judge. 'score' computes log-probs alone, so
 * it has no rollout either.
 */
export function policySizes(trainConfig: TrainConfig, use: 'generate' | 'score') {
  const {
    withReference: _,
    withoutReference: __,
    judge: ___,
    judgePositions: ____,
    rollout,
    ...sizes
  } = engineSizes(trainConfig);
  return { ...sizes, ...(use === 'generate' && { rollout }), use };
}

/** Maximum length of a conversation with the model, in multiples of the maximum length of a sample. */
const CONVERSATION = 4;

/**
 * Returns the fields of an engine's spec for an engine that only answers questions, one at a time. `rollout` generates with weights that
 * can be imported during training. With `start`, `judge` generates with the start weights.
 * @param options.context maximum number of tokens of a conversation (default: `CONVERSATION` samples)
 */
export function answerSizes(
  trainConfig: TrainConfig,
  model: ModelConfig,
  { start, context }: { start: boolean; context?: number | undefined },
) {
  const { maxPositions, maxMemoryMib, ...asked } = engineSizes(trainConfig);
  const { maxTokenLen, lora, chatTemplateKwargs, kernelTuning, weightFormat, dtype, adjustedDraws } = asked;
  const positions = context ?? Math.min(model.maxPositionEmbeddings, CONVERSATION * maxPositions);
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
    ...(maxMemoryMib !== undefined && { maxMemoryMib }),
    ...(lora && { lora }),
    ...(chatTemplateKwargs && { chatTemplateKwargs }),
    ...(kernelTuning && { kernelTuning }),
    ...(weightFormat && { weightFormat }),
    ...(dtype && { dtype }),
    ...(adjustedDraws && { adjustedDraws }),
  };
}
