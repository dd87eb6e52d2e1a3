/** The interface between the controller and an engine in another thread. Both sides import only this. */

import type { AdapterSummary, GpuCounters } from '../gpu/device.ts';
import type { ModelConfig } from '../model/config.ts';
import type { DownloadProgress } from '../model/checkpoint/download.ts';
import type {
  OptimizerOptions,
  OptimizerStepResult,
  PackedBatch,
  TensorMap,
  TokenOutputs,
  TrainLoss,
} from '../model/engine.ts';
import type { OpenCheckpoint } from '../model/checkpoint/open.ts';
import type { Vocabulary } from '../model/tokenizer/vocabulary.ts';
import type { GenerateRequest, Generation, RolloutStats } from '../rollout/types.ts';
import type { DeviceSpec } from './engineSpec.ts';

export interface EngineDescription {
  adapter: AdapterSummary;
  config: ModelConfig;
  counters: GpuCounters;
}

/** A checkpoint as the controller needs it; its weights stay in the worker. */
export type OpenedModel = Omit<OpenCheckpoint, 'weights'>;

/** Which of the two models a call is for; the reference generates where it is a judge. */
export type ModelRole = 'policy' | 'reference';

/** As DeviceSpec; 'opened' = the weights of the model that `openModel` opened. */
export type RemoteDeviceSpec = Omit<DeviceSpec, 'weights'> & { weights: DeviceSpec['weights'] | 'opened' };

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

  logProbs(role: ModelRole, batch: PackedBatch, temperature: number): Promise<TokenOutputs>;
  forwardBackward(batch: PackedBatch, loss: TrainLoss, temperature: number): Promise<TokenOutputs>;
  optimizerStep(options: OptimizerOptions): Promise<OptimizerStepResult>;
  /** 'reference' = the weights of the reference model; all else is the policy's. */
  exportState(what: 'weights' | 'reference' | 'optimizer' | 'gradients'): Promise<TensorMap>;
  importState(what: 'weights' | 'reference' | 'optimizer', tensors: TensorMap): Promise<void>;

  /** Must come before the first request with stop strings or constrained tool calls. */
  useVocabulary(vocabulary: Vocabulary): Promise<void>;
  /** Requests that were made in one task of the caller's event loop; each answer resolves on its own. */
  generate(
    role: ModelRole,
    requests: GenerateRequest[],
    onDone: (index: number, result: Generation | string) => void,
  ): Promise<void>;
  release(role: ModelRole, requestIds: string[]): Promise<void>;
  abort(role: ModelRole, requestIds: string[]): Promise<void>;
  resetCache(role: ModelRole): Promise<void>;
  pause(role: ModelRole): Promise<void>;
  resume(role: ModelRole): Promise<void>;
  takeStats(role: ModelRole): Promise<RolloutStats>;
  destroy(): Promise<void>;
}
