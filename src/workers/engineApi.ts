/** Interface between the controller and an engine in another thread. Declares every message between them. */

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

/** Current state of an engine. */
export interface EngineDescription {
  /** The GPU, or the software that replaces it. */
  adapter: AdapterSummary;
  /** The model's sizes. */
  config: ModelConfig;
  /** Buffers, bytes, pipelines and passes so far. */
  counters: GpuCounters;
}

/** A checkpoint as the controller needs it; its weights stay in the worker. */
export type OpenedModel = Omit<OpenCheckpoint, 'weights'>;

/** Model that a call is for. A judge that generates is 'reference', whichever weights it has. */
export type ModelRole = 'policy' | 'reference' | 'judge';

/**
 * Like DeviceSpec. 'opened' = the weights of the model that `openModel` opened last; for a judge, `opened` is its
 * address.
 */
export type RemoteDeviceSpec = Omit<DeviceSpec, 'weights' | 'judgeModel'> & {
  weights: DeviceSpec['weights'] | 'opened';
  judgeModel?: { config: ModelConfig; weights: DeviceSpec['weights'] | { opened: string } };
};

/** An error as it is sent between threads, without its class. */
export type FailedGeneration = Pick<Error, 'name' | 'message'>;

export interface EngineApi {
  /**
   * Downloads a model into the worker's OPFS and opens it there, without its weights. Optional; call it before `load`.
   */
  openModel(
    address: string,
    endpoint: string | undefined,
    onProgress: (progress: DownloadProgress) => void,
  ): Promise<OpenedModel>;
  /** Requests a device and builds the engine on it. Must be called before all methods below. */
  load(spec: RemoteDeviceSpec): Promise<EngineDescription>;
  describe(): Promise<EngineDescription>;
  /** Resolves with the reason when the device is lost. */
  untilLost(): Promise<Pick<GPUDeviceLostInfo, 'reason' | 'message'>>;

  logProbs(role: ModelRole, batch: PackedBatch, temperature: number): Promise<TokenOutputs>;
  drawBounds(batch: PackedBatch, temperature: number): Promise<DrawBounds>;
  forwardBackward(batch: PackedBatch, loss: TrainLoss, temperature: number): Promise<TokenOutputs>;
  optimizerStep(options: OptimizerOptions): Promise<OptimizerStepResult>;
  zeroGrad(): Promise<void>;
  /** Exports a state. 'reference' = weights of the reference model; all others are the policy's. */
  exportState(what: 'weights' | 'reference' | 'optimizer' | 'gradients'): Promise<TensorMap>;
  importState(what: 'weights' | 'reference' | 'optimizer', tensors: TensorMap): Promise<void>;

  /** Must be called before the first request with stop strings or constrained tool calls. */
  useVocabulary(vocabulary: Vocabulary): Promise<void>;
  /** Sends requests that were made in one task of the caller's event loop. Each answer resolves separately. */
  generate(
    role: ModelRole,
    requests: GenerateRequest[],
    onDone: (index: number, result: Generation | FailedGeneration) => void,
    /** Called with the tokens of those requests as they are read back. */
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

  /** Only for an engine loaded with rolloutWeights 'copy'. */
  updateWeights(version: number): Promise<WeightTransfer>;
  /** Same as WeightSender, for an engine with 'stream' that trains. */
  openSend(options: SendOptions): Promise<WeightTensor[]>;
  sendWeights(bucket: number): Promise<ArrayBuffer | undefined>;
  /** Same as WeightReceiver, for an engine with 'stream' that generates. */
  openReceive(tensors: readonly WeightTensor[], bucketBytes: number): Promise<void>;
  receiveWeights(bucket: number, data: ArrayBuffer): Promise<void>;
  useWeights(version: number, count: number): Promise<void>;
  dropWeights(): Promise<void>;
  destroy(): Promise<void>;
}
