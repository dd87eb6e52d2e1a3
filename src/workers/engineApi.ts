/** The interface between the controller and an engine in another thread. All that crosses is declared here. */

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

/** An engine as it is. */
export interface EngineDescription {
  /** The GPU, or what stands in for it. */
  adapter: AdapterSummary;
  /** The model's sizes. */
  config: ModelConfig;
  /** Buffers, bytes, pipelines and passes so far. */
  counters: GpuCounters;
}

/** A checkpoint as the controller needs it; its weights stay in the worker. */
export type OpenedModel = Omit<OpenCheckpoint, 'weights'>;

/** Which model a call is for. What generates as a judge is called 'reference', whichever weights it has. */
export type ModelRole = 'policy' | 'reference' | 'judge';

/** Like DeviceSpec; 'opened' = the weights of the model that `openModel` opened last; of a judge, `opened` names its address. */
export type RemoteDeviceSpec = Omit<DeviceSpec, 'weights' | 'judgeModel'> & {
  weights: DeviceSpec['weights'] | 'opened';
  judgeModel?: { config: ModelConfig; weights: DeviceSpec['weights'] | { opened: string } };
};

/** An error as it crosses, without its class. */
export type FailedGeneration = Pick<Error, 'name' | 'message'>;

export interface EngineApi {
  /** Brings a model into the worker's OPFS and opens it there, weights aside. Called before `load`, or not at all. */
  openModel(
    address: string,
    endpoint: string | undefined,
    onProgress: (progress: DownloadProgress) => void,
  ): Promise<OpenedModel>;
  /** Takes a device and builds everything on it. Must come before all that follows. */
  load(spec: RemoteDeviceSpec): Promise<EngineDescription>;
  describe(): Promise<EngineDescription>;
  /** Resolves when the device is lost, to why. */
  untilLost(): Promise<Pick<GPUDeviceLostInfo, 'reason' | 'message'>>;

  logProbs(role: ModelRole, batch: PackedBatch, temperature: number): Promise<TokenOutputs>;
  drawBounds(batch: PackedBatch, temperature: number): Promise<DrawBounds>;
  forwardBackward(batch: PackedBatch, loss: TrainLoss, temperature: number): Promise<TokenOutputs>;
  optimizerStep(options: OptimizerOptions): Promise<OptimizerStepResult>;
  zeroGrad(): Promise<void>;
  /** 'reference' = the weights of the reference model; all else is the policy's. */
  exportState(what: 'weights' | 'reference' | 'optimizer' | 'gradients'): Promise<TensorMap>;
  importState(what: 'weights' | 'reference' | 'optimizer', tensors: TensorMap): Promise<void>;

  /** Must come before the first request with stop strings or constrained tool calls. */
  useVocabulary(vocabulary: Vocabulary): Promise<void>;
  /** Requests that were made in one task of the caller's event loop; each answer resolves on its own. */
  generate(
    role: ModelRole,
    requests: GenerateRequest[],
    onDone: (index: number, result: Generation | FailedGeneration) => void,
    /** Hears the tokens of those requests as they are read back. */
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

  /** For an engine that was loaded with rolloutWeights 'copy'. */
  updateWeights(version: number): Promise<WeightTransfer>;
  /** Like WeightSender, for an engine with 'stream' that trains. */
  openSend(options: SendOptions): Promise<WeightTensor[]>;
  sendWeights(bucket: number): Promise<ArrayBuffer | undefined>;
  /** Like WeightReceiver, for an engine with 'stream' that generates. */
  openReceive(tensors: readonly WeightTensor[], bucketBytes: number): Promise<void>;
  receiveWeights(bucket: number, data: ArrayBuffer): Promise<void>;
  useWeights(version: number, count: number): Promise<void>;
  dropWeights(): Promise<void>;
  destroy(): Promise<void>;
}
