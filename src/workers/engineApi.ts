/** Interface between the controller and an engine in another thread. Declares all messages between the two threads. */

import type { Lowered } from '../grpo/types.ts';
import type { AdapterSummary, GpuCounters } from '../gpu/device.ts';
import type { ModelConfig } from '../model/config.ts';
import type { DownloadProgress } from '../model/checkpoint/download.ts';
import type {
  DrawBounds,
  OptimizerOptions,
  OptimizerStepResult,
  PackedBatch,
  TensorMap,
  TokenOutputs,
  TrainLoss,
} from '../model/engine.ts';
import type { WeightTensor } from '../model/weights/buckets.ts';
import type { SendOptions } from '../model/weights/stream.ts';
import type { WeightTransfer } from '../grpo/pipeline/types.ts';
import type { OpenCheckpoint } from '../model/checkpoint/open.ts';
import type { Vocabulary } from '../model/tokenizer/vocabulary.ts';
import type { DrawnSoFar, GenerateRequest, Generation, RolloutStats } from '../rollout/types.ts';
import type { DeviceSpec } from './engineSpec.ts';

/** Description of an engine and its current counters. */
export interface EngineDescription {
  /** The GPU, or the software adapter that is used instead. */
  adapter: AdapterSummary;
  /** The model's sizes. */
  config: ModelConfig;
  /** Counters of buffers, bytes, pipelines and passes since the engine was created. */
  counters: GpuCounters;
  /** Settings that were lowered, so that the engine fits. */
  lowered?: Lowered;
}

/** A checkpoint as the controller needs it, without the weights, which stay in the worker. */
export type OpenedModel = Omit<OpenCheckpoint, 'weights'>;

/** The model that a call is for. A judge that generates is called 'reference', even if it has its own weights. */
export type ModelRole = 'policy' | 'reference' | 'judge';

/**
 * Like DeviceSpec, but weights can already be in the worker. 'opened' = the weights of the model that `openModel` opened last. For a judge,
 * `opened` is the address of a model that `openModel` has opened.
 */
export type RemoteDeviceSpec = Omit<DeviceSpec, 'weights' | 'judgeModel'> & {
  weights: DeviceSpec['weights'] | 'opened';
  judgeModel?: { config: ModelConfig; weights: DeviceSpec['weights'] | { opened: string } };
};

/** An error in the form in which it is sent between threads, without its class. */
export type FailedGeneration = Pick<Error, 'name' | 'message'>;

export interface EngineApi {
  /** Downloads a model into the worker's OPFS and opens it there, without loading its weights. Optional; call it before `load`. */
  openModel(
    address: string,
    endpoint: string | undefined,
    onProgress: (progress: DownloadProgress) => void,
  ): Promise<OpenedModel>;
  /** Requests a device and creates the engine on it. Must be called before all methods below. */
  load(spec: RemoteDeviceSpec): Promise<EngineDescription>;
  describe(): Promise<EngineDescription>;
  /** Resolves when the device is lost, with the reason. */
  untilLost(): Promise<Pick<GPUDeviceLostInfo, 'reason' | 'message'>>;

  logProbs(role: ModelRole, batch: PackedBatch, temperature: number): Promise<TokenOutputs>;
  drawBounds(batch: PackedBatch, temperature: number): Promise<DrawBounds>;
  forwardBackward(batch: PackedBatch, loss: TrainLoss, temperature: number): Promise<TokenOutputs>;
  optimizerStep(options: OptimizerOptions): Promise<OptimizerStepResult>;
  zeroGrad(): Promise<void>;
  /** Exports tensors. 'reference' = weights of the reference model. All other kinds are of the policy. */
  exportState(what: 'weights' | 'reference' | 'optimizer' | 'gradients'): Promise<TensorMap>;
  importState(what: 'weights' | 'reference' | 'optimizer', tensors: TensorMap): Promise<void>;

  /** Sends the vocabulary. Must be called before the first request with stop strings or constrained tool calls. */
  useVocabulary(vocabulary: Vocabulary): Promise<void>;
  /** Sends several requests in one message: those made in one task of the caller's event loop. Each answer arrives separately. */
  generate(
    role: ModelRole,
    requests: GenerateRequest[],
    onDone: (index: number, result: Generation | FailedGeneration) => void,
    /** Called with the tokens of a request as they are read back. */
    watch?: { indices: number[] },
    onTokens?: (index: number, tokenIds: readonly number[]) => void,
  ): Promise<void>;
  release(role: ModelRole, requestIds: string[]): Promise<void>;
  abort(role: ModelRole, requestIds: string[]): Promise<void>;
  resetCache(role: ModelRole, weightVersion?: number): Promise<void>;
  drawnSoFar(role: ModelRole, requestIds: string[]): Promise<(DrawnSoFar | undefined)[]>;
  pause(role: ModelRole): Promise<void>;
  resume(role: ModelRole): Promise<void>;
  idle(role: ModelRole, maxMs: number): Promise<void>;
  takeStats(role: ModelRole): Promise<RolloutStats>;

  /** Copies the policy's weights for rollout. Only for an engine that was loaded with rolloutWeights 'copy'. */
  updateWeights(version: number): Promise<WeightTransfer>;
  /** Like WeightSender. Only for the engine that trains, with rolloutWeights 'stream'. */
  openSend(options: SendOptions): Promise<WeightTensor[]>;
  sendWeights(bucket: number): Promise<ArrayBuffer | undefined>;
  /** Like WeightReceiver. Only for the engine that generates, with rolloutWeights 'stream'. */
  openReceive(tensors: readonly WeightTensor[], bucketBytes: number): Promise<void>;
  receiveWeights(bucket: number, data: ArrayBuffer): Promise<void>;
  useWeights(version: number, count: number): Promise<void>;
  dropWeights(): Promise<void>;
  destroy(): Promise<void>;
}
