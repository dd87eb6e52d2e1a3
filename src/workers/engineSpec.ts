/** The recipe of an engine, and its sizes; free of engine code, so that a page can ask for one without loading it. */

import type { PackedFormat } from '../gpu/packedFormat.ts';
import type { TrainConfig } from '../grpo/config/types.ts';
import type { ModelConfig } from '../model/config.ts';
import type { TensorMap } from '../model/engine.ts';
import { type LoraConfig, loraModules } from '../model/lora/config.ts';
import type { KernelTuning } from '../model/kernels/tuning.ts';
import { optimizerOf, type OptimizerSpec } from '../model/optimizer/spec.ts';
import type { Weights } from '../model/weights/load.ts';
import type { SpeculativeOptions } from '../rollout/speculative/ngramProposer.ts';
import type { DecoderSizes } from '../rollout/decode/decoder.ts';
import type { AsyncScheduling, Preemption } from '../rollout/server/server.ts';

/** Everything an engine is made from; plain data, so that it can cross to a worker. */
export interface EngineSpec {
  engine: 'wgsl' | 'tfjs';
  config: ModelConfig;
  /** A source that is read piece by piece cannot cross to a worker; a map can. */
  weights: Weights;
  tokenizerJson: unknown;
  tokenizerConfigJson: unknown;
  /** Variables for the chat template; see ChatTokenizer. */
  chatTemplateKwargs?: Record<string, unknown>;
  /** Rows of the largest micro-batch. */
  maxTokenLen: number;
  /** Longest sequence, prompt and response. */
  maxPositions: number;
  /** Absent = no rollout (supervised training). */
  rollout?: DecoderSizes;
  /** Decoding with the reference's weights, for a judge; needs withReference. */
  judge?: DecoderSizes;
  /** Samples that lose their slots to a request that waits; absent = 'parked'. */
  preemption?: Preemption;
  /** Start a pass before the last one was read; absent = 'auto'. */
  asyncScheduling?: AsyncScheduling;
  /** Absent = plain decoding. */
  speculative?: SpeculativeOptions;
  /** Keep a frozen copy of the start weights for KL terms. */
  withReference?: boolean;
  maxMemoryMib?: number;
  /** The use that it is planned for; absent = 'train'. 'score' = log-probs alone, 'generate' = rollout alone. */
  use?: 'train' | 'score' | 'generate';
  /** Penalties, a least length or constrained calls are asked for, which take buffers of their own. For the plan. */
  adjustedDraws?: boolean;
  /** Train adapters alone; the reference is then the base with them off. Only by engine wgsl. */
  lora?: LoraConfig;
  /** The adapters' start, by PEFT's names; absent = fresh ones. */
  adapter?: TensorMap;
  enableGradientCheckpointing?: boolean;
  /** Absent = AdamW. */
  optimizer?: OptimizerSpec;
  /** Time rollout's passes by the GPU's clock, where the adapter has timestamps. */
  gpuTimes?: boolean;
  /** Which kernels it uses; absent = 'auto'. No bit depends on it. */
  kernelTuning?: KernelTuning;
  /** The matrices are kept in fewer bits; only where they are not trained. */
  weightFormat?: PackedFormat;
  /**
   * Weights as passes read them, activations and the KV cache in 16-bit floats, where the adapter has shader-f16; else
   * they are 32-bit all the same. Only by engine wgsl.
   */
  dtype?: 'float16' | undefined;
}

/** The part of a spec that a device needs; the tokenizer stays with the controller. */
export type DeviceSpec = Omit<EngineSpec, 'tokenizerJson' | 'tokenizerConfigJson' | 'chatTemplateKwargs'>;

/** A sentence for the user where an adapter could not give the dtype that was asked for; undefined where it could. */
export function dtypeNote(asked: Pick<EngineSpec, 'dtype'>, used: Pick<EngineSpec, 'dtype'>): string | undefined {
  if (asked.dtype === used.dtype) return undefined;
  return 'float16 was asked for, but this adapter has no shader-f16: everything stays in float32';
}

/** The adapters a training config asks for; undefined where every weight is trained. */
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

/** True if the reference judges, and not a model of transformers.js. */
const ownJudge = ({ judge }: TrainConfig['reward']): boolean => judge.weight !== 0 && judge.path === undefined;

/** Every sample is a prompt of its own. */
function judgeSizes({ maxNumSeqs, maxNewTokens, maxPromptLength }: TrainConfig['reward']['judge']): DecoderSizes {
  const maxBatchedTokens = Math.max(1024, maxPromptLength);
  return { maxNumSeqs, slotCapacity: maxNewTokens, maxPrompts: maxNumSeqs, maxPromptLength, maxBatchedTokens };
}

/** The part of an engine's spec that follows from a training config: sizes, adapters, memory. */
export function engineSizes(trainConfig: TrainConfig) {
  const { data, rollout, actor, algorithm, model, engine, reward, trainer } = trainConfig;
  const lora = loraOf(trainConfig);
  const maxPositions = data.maxPromptLength + data.maxResponseLength;
  const { enable, verifyRows, ...speculative } = rollout.speculative;
  return {
    engine,
    maxTokenLen: actor.ppoMaxTokenLenPerGpu,
    maxPositions,
    withReference: actor.useKlLoss || algorithm.useKlInReward || ownJudge(reward),
    rollout: {
      maxNumSeqs: rollout.maxNumSeqs,
      slotCapacity: data.maxResponseLength,
      maxPrompts: rollout.maxNumSeqs,
      maxPromptLength: data.maxPromptLength,
      maxBatchedTokens: Math.max(2048, maxPositions),
      ...(enable && verifyRows !== undefined && { verifyRows }),
    },
    ...(ownJudge(reward) && { judge: judgeSizes(reward.judge) }),
    preemption: rollout.preemption,
    asyncScheduling: rollout.asyncScheduling,
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
