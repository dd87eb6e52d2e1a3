/** The recipe of an engine, and its sizes; free of engine code, so that a page can ask for one without loading it. */

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
import type { SpeculativeOptions } from '../rollout/speculative/ngramProposer.ts';
import type { DecoderSizes } from '../rollout/decode/decoder.ts';
import type { AsyncScheduling, KvCachePolicy, Preemption } from '../rollout/server/server.ts';

/** Everything an engine is made from; plain data, so that it can cross to a worker. */
export interface EngineSpec {
  /** wgsl = own kernels; tfjs = gradients by autodiff, a check (entry `webgrpo/tfjs`). */
  engine: 'wgsl' | 'tfjs';
  /** The model's sizes. */
  config: ModelConfig;
  /** A source that is read piece by piece cannot cross to a worker; a map can. */
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
  /** Absent = no rollout (supervised training). */
  rollout?: DecoderSizes;
  /**
   * What rollout draws by; absent = shared, the buffers that training writes. copy = a second set on the same device; stream = another
   * device: this one trains and has no rollout, or, where `use` is 'generate', is the other one (`splitSpecs`). Only by engine wgsl.
   */
  rolloutWeights?: 'shared' | 'copy' | 'stream' | undefined;
  /** Decoding with the judge's weights: those of judgeModel, or else of the reference, which withReference asks for. */
  judge?: DecoderSizes;
  /** The longest prompt, with its reply, that a rubric's judge reads; absent = no rubric is judged on this device. */
  judgePositions?: number;
  /** A judge with weights of its own, frozen. */
  judgeModel?: JudgeModel;
  /** Samples that lose their slots to a request that waits; absent = 'parked'. */
  preemption?: Preemption;
  /** Contexts of samples in flight when the weights change; absent = 'recompute'. */
  kvCache?: KvCachePolicy;
  /** Start a pass before the last one was read; absent = 'auto'. */
  asyncScheduling?: AsyncScheduling;
  /** Schedule by counts and not by the clock; see RolloutOptions. */
  repeatable?: boolean;
  /** Absent = plain decoding. */
  speculative?: SpeculativeOptions;
  /** Keep a frozen copy of the start weights for KL terms. */
  withReference?: boolean;
  /** Device memory that it may take, MiB; more throws OutOfMemoryError. Absent = what the device has. */
  maxMemoryMib?: number;
  /** The use that it is planned for; absent = 'train'. 'score' = log-probs alone, 'generate' = rollout alone. */
  use?: 'train' | 'score' | 'generate';
  /** Penalties, a least length or constrained calls are asked for, which take buffers of their own. For the plan. */
  adjustedDraws?: boolean;
  /** Train adapters alone; the reference is then the base with them off. Only by engine wgsl. */
  lora?: LoraConfig;
  /** The adapters' start, by PEFT's names; absent = fresh ones. */
  adapter?: TensorMap;
  /** Keep no activations of layers but compute them again in the backward pass. */
  enableGradientCheckpointing?: boolean;
  /** Absent = AdamW. */
  optimizer?: OptimizerSpec;
  /** Time rollout's passes by the GPU's clock, where the adapter has timestamps. */
  gpuTimes?: boolean;
  /** Which kernels it uses; absent = 'auto'. No bit depends on it. */
  kernelTuning?: KernelTuning;
  /** The matrices are kept in fewer bits; only where they are not trained. */
  weightFormat?: PackedFormat;
  /** Tensors that the file of the weights has in a format of the device, and that stay in it if they are not trained. */
  packed?: StoredFormats;
  /**
   * Weights as passes read them, activations and the KV cache in 16-bit floats, where the adapter has shader-f16; else
   * they are 32-bit all the same. Only by engine wgsl.
   */
  dtype?: 'float16' | undefined;
}

/** Another model, on the same device, with its own tokenizer. */
export interface JudgeModel {
  config: ModelConfig;
  weights: Weights;
  tokenizerJson: unknown;
  tokenizerConfigJson: unknown;
}

/** The part of a spec that a device needs; the tokenizers stay with the controller. */
export type DeviceSpec = Omit<
  EngineSpec,
  'tokenizerJson' | 'tokenizerConfigJson' | 'chatTemplateKwargs' | 'judgeModel'
> & { judgeModel?: Pick<JudgeModel, 'config' | 'weights'> };

/** A sentence for the user where an adapter could not give the dtype that was asked for; undefined if it could. */
export function dtypeNote(asked: Pick<EngineSpec, 'dtype'>, used: Pick<EngineSpec, 'dtype'>): string | undefined {
  if (asked.dtype === used.dtype) return undefined;
  return 'float16 was asked for, but this adapter has no shader-f16: everything stays in float32';
}

/** The adapters a training config asks for; undefined if every weight is trained. */
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

/** Which judges run on our own engine, and not by transformers.js: one that says a number, one of a rubric. */
function ownJudges({ judge, rubric }: TrainConfig['reward']): { says: boolean; decides: boolean } {
  const own = judge.path === undefined;
  return { says: own && judge.weight !== 0, decides: own && rubric !== undefined };
}

/** Path of the model that judges on the engine beside the policy; undefined if the reference judges, or if there is no judge. */
export function judgeCheckpoint({ reward }: TrainConfig): string | undefined {
  const { says, decides } = ownJudges(reward);
  return says || decides ? reward.judge.checkpoint : undefined;
}

/** Every sample is a prompt of its own. */
function judgeSizes({ maxNumSeqs, maxNewTokens, maxPromptLength }: TrainConfig['reward']['judge']): DecoderSizes {
  const maxBatchedTokens = Math.max(1024, maxPromptLength);
  return { maxNumSeqs, slotCapacity: maxNewTokens, maxPrompts: maxNumSeqs, maxPromptLength, maxBatchedTokens };
}

/** On one device, a pipeline that generates while it trains needs weights that do not change meanwhile. */
const makesCopy = (config: TrainConfig): boolean =>
  config.trainer.placement === 'colocated' && pipelineOf(config).isAsync;

/** The part of an engine's spec that follows from a training config: sizes, adapters, memory. */
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
    ...(rollout.overSampleRate > 0 && { repeatable: true }), // what ends first is trained on
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

/** Conversations with a model that answers may be so many times as long as a sample. */
const CONVERSATION = 4;

/**
 * The part of an engine's spec that follows from a training config where it only answers questions, one at a time. `rollout`
 * generates with weights that may be imported during training; with `start`, `judge` does with the start weights.
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
