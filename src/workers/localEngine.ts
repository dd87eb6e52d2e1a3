/** Builds the whole engine in this thread: device, weights, policy trainer, reference and rollout, on one GPUDevice. */

import { type AdapterSummary, offersHalves } from '../gpu/adapter.ts';
import { Gpu } from '../gpu/device.ts';
import type { TrainerEngine } from '../grpo/types.ts';
import type { ModelEngine } from '../model/engine.ts';
import { InputError, OutOfMemoryError } from '../errors.ts';
import type { FileStore } from '../model/checkpoint/store.ts';
import type { LlamaModel } from '../model/llama.ts';
import { applyTuning, type TableSource } from '../model/kernels/tuning.ts';
import { loadModel } from '../model/weights/load.ts';
import { prepareFirstTokens, prepareKernels } from '../model/kernels/prepare.ts';
import { ChatTokenizer } from '../model/tokenizer/chat.ts';
import { type Vocabulary, vocabularyOf } from '../model/tokenizer/vocabulary.ts';
import { WgslEngine } from '../model/wgslEngine.ts';
import { WgslRolloutEngine } from '../rollout/server/server.ts';
import type { DeviceSpec, EngineSpec } from './engineSpec.ts';
import { checkBindings, checkPlan, withAdvice } from './memoryPlan.ts';
import { policyOptions, positionsOf, referenceOptions } from './modelOptions.ts';
import { createRegisteredTfjs } from './tfjsEngine.ts';

export { type DeviceSpec, engineSizes, type EngineSpec, loraOf } from './engineSpec.ts';

/** An engine as a device holds it; the tokenizer stays with the controller. */
export interface DeviceEngine extends Omit<TrainerEngine, 'tokenizer'> {
  gpu: Gpu;
  adapter: AdapterSummary;
  /** Where the choice of its kernels is from. */
  tiles: TableSource;
  destroy(): void;
}

export type LocalEngine = DeviceEngine & TrainerEngine;

/** @param tuning where kernel tables are kept; absent = an adapter whose kernels must be timed is timed each time */
export async function createLocalEngine(spec: EngineSpec, tuning?: FileStore): Promise<LocalEngine> {
  const { tokenizerJson, tokenizerConfigJson, chatTemplateKwargs = {} } = spec;
  const tokenizer = new ChatTokenizer(tokenizerJson, tokenizerConfigJson, { chatTemplateKwargs });
  const vocabulary = () => vocabularyOf(tokenizerJson);
  return { ...(await createDeviceEngine(spec, { vocabulary, tuning: async () => tuning })), tokenizer };
}

/** Things that an engine asks its surroundings for, when it needs them. */
interface Surroundings {
  /** For stop strings and constrained tool calls; absent = such requests are refused. */
  vocabulary?: () => Vocabulary;
  /** Where kernel tables are kept. */
  tuning?: () => Promise<FileStore | undefined>;
}

export async function createDeviceEngine(asked: DeviceSpec, around: Surroundings = {}): Promise<DeviceEngine> {
  const maxBytes = asked.maxMemoryMib ? asked.maxMemoryMib * 2 ** 20 : Infinity;
  const spec = await withOfferedDtype(asked);
  const gpu = await Gpu.create({ maxBytes });
  const sizes = { ...spec, maxArenaBytes: gpu.maxArenaBytes };
  try {
    checkPlan(sizes, maxBytes);
    checkBindings(sizes, gpu.maxArenaBytes);
    const tiles = await applyTuning(gpu, spec.kernelTuning ?? 'auto', around.tuning);
    const engine = await buildEngine(gpu, spec, around).catch((error: unknown) => {
      throw error instanceof OutOfMemoryError ? withAdvice(error, sizes) : error;
    });
    return { ...engine, tiles };
  } catch (error) {
    gpu.destroy();
    throw error;
  }
}

/** The spec as this adapter can run it: without shader-f16 everything stays float32. */
export async function withOfferedDtype<T extends Pick<EngineSpec, 'dtype' | 'engine'>>(spec: T): Promise<T> {
  if (!spec.dtype) return spec;
  if (spec.engine === 'tfjs')
    throw new InputError('Engine "tfjs" computes in float32 alone; use engine "wgsl" for model.dtype=float16.');
  if (await offersHalves()) return spec;
  const { dtype: _, ...rest } = spec;
  return rest as T;
}

async function buildEngine(
  gpu: Gpu,
  spec: DeviceSpec,
  { vocabulary }: Surroundings,
): Promise<Omit<DeviceEngine, 'tiles'>> {
  const { config, weights, preemption, asyncScheduling, speculative, judge } = spec;
  const half = spec.dtype === 'float16';
  if (spec.gpuTimes) gpu.startTimer();
  const [model] = await Promise.all([
    loadModel(gpu, config, positionsOf(spec), weights, policyOptions(spec)),
    spec.rollout && !half
      ? prepareFirstTokens(gpu, config)
      : prepareKernels(gpu, config, {
          rollout: spec.rollout !== undefined,
          half,
          training: (spec.use ?? 'train') === 'train',
        }),
  ]);
  if (spec.adapter) model.lora?.weights.importTensors(spec.adapter);
  const trainer = await createModelEngine(gpu, model, spec);
  const reference = spec.withReference ? await referenceOf(trainer, model, gpu, spec) : undefined;
  return {
    gpu,
    adapter: gpu.adapter,
    model: trainer,
    rollout: spec.rollout
      ? new WgslRolloutEngine(gpu, model, spec.rollout, { preemption, asyncScheduling, vocabulary, speculative })
      : noRollout,
    ...(reference && { reference: reference.engine }),
    ...(reference && judge && { judge: new WgslRolloutEngine(gpu, reference.model, judge) }),
    destroy: () => gpu.destroy(),
  };
}

async function createModelEngine(gpu: Gpu, model: LlamaModel, spec: DeviceSpec): Promise<ModelEngine> {
  const { engine, maxTokenLen, enableGradientCheckpointing, optimizer } = spec;
  if (engine === 'wgsl') return new WgslEngine(gpu, model, maxTokenLen, { enableGradientCheckpointing, optimizer });
  if (spec.lora) throw new InputError('Engine "tfjs" trains every weight and no adapters; use engine "wgsl" for LoRA.');
  return createRegisteredTfjs(gpu, model, maxTokenLen, { optimizer });
}

interface Reference {
  engine: ModelEngine;
  model: LlamaModel;
}

/** With adapters the frozen base is there already; without, a copy of the start weights is made. */
async function referenceOf(trainer: ModelEngine, policy: LlamaModel, gpu: Gpu, spec: DeviceSpec): Promise<Reference> {
  if (spec.lora && trainer instanceof WgslEngine) {
    const { lora: _, ...model } = policy;
    return { engine: trainer.referencePolicy(), model };
  }
  const model = await loadModel(gpu, spec.config, positionsOf(spec), spec.weights, referenceOptions(spec));
  return { engine: new WgslEngine(gpu, model, spec.maxTokenLen), model };
}

const noRollout: TrainerEngine['rollout'] = {
  generate: () => Promise.reject(new Error('This engine was made for supervised training, without rollout.')),
  release: () => {},
  abort: () => {},
  resetCache: () => {},
  takeStats: () => Promise.reject(new Error('This engine was made for supervised training, without rollout.')),
};
