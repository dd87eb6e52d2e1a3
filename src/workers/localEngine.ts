/** Builds the whole engine in this thread: device, weights, policy trainer, reference and rollout, on one GPUDevice. */

import { type AdapterSummary, offersHalves } from '../gpu/adapter.ts';
import { Gpu } from '../gpu/device.ts';
import type { TrainerEngine } from '../grpo/types.ts';
import type { ModelEngine } from '../model/engine.ts';
import { InputError, OutOfMemoryError } from '../errors.ts';
import type { FileStore } from '../model/checkpoint/store.ts';
import { allocateCopy, copyTrained, type LlamaModel } from '../model/llama.ts';
import { applyTuning, type TableSource } from '../model/kernels/tuning.ts';
import { loadModel } from '../model/weights/load.ts';
import { prepareFirstTokens, prepareKernels } from '../model/kernels/prepare.ts';
import { modelTokenizer } from '../model/tokenizer/modelTokenizer.ts';
import { type Vocabulary, vocabularyOf } from '../model/tokenizer/vocabulary.ts';
import { WgslEngine } from '../model/wgslEngine.ts';
import { DeviceReceiver, DeviceSender, type WeightReceiver, type WeightSender } from '../model/weights/stream.ts';
import { WgslRolloutEngine } from '../rollout/server/server.ts';
import { copiedWeights } from './checkpointEngine.ts';
import type { DeviceSpec, EngineSpec } from './engineSpec.ts';
import { checkBindings, checkPlan, withAdvice } from './memoryPlan.ts';
import {
  JUDGE_OPTIONS,
  judgeLengths,
  policyOptions,
  positionsOf,
  referenceOptions,
  rolloutPlace,
} from './modelOptions.ts';
import { createRegisteredTfjs } from './tfjsEngine.ts';

export { type DeviceSpec, engineSizes, type EngineSpec, loraOf } from './engineSpec.ts';

/** An engine as a device holds it; the tokenizer stays with the controller. */
export interface DeviceEngine extends Omit<TrainerEngine, 'tokenizer'> {
  gpu: Gpu;
  adapter: AdapterSummary;
  /** Sender on the device that trains, if rollout is on another one. */
  sender?: WeightSender;
  /** Receiver on the device that generates, if training is on another one. */
  receiver?: WeightReceiver;
  /** Where the choice of its kernels is from. */
  tiles: TableSource;
  destroy(): void;
}

/** An engine of this thread. */
export type LocalEngine = DeviceEngine & TrainerEngine;

/**
 * An engine of this thread, on a device of its own. Throws InputError for what does not fit together, NoAdapterError, and
 * OutOfMemoryError with the sizes.
 * @param tuning where kernel tables are kept; absent = an adapter whose kernels must be timed is timed each time
 */
export async function createLocalEngine(spec: EngineSpec, tuning?: FileStore): Promise<LocalEngine> {
  const { tokenizerJson, chatTemplateKwargs } = spec;
  const tokenizer = modelTokenizer(spec, chatTemplateKwargs);
  const { judgeModel } = spec;
  const judgeTokenizer = judgeModel && modelTokenizer(judgeModel);
  const vocabulary = () => vocabularyOf(tokenizerJson);
  const device = await createDeviceEngine(spec, { vocabulary, tuning: async () => tuning });
  return { ...device, tokenizer, ...(judgeTokenizer && { judgeTokenizer }) };
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
    await gpu.idle(); // a device that was lost meanwhile is said here, not by the first step
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
    throw new InputError('Engine "tfjs" computes in float32 alone. Use engine "wgsl" for model.dtype=float16.');
  if (await offersHalves()) return spec;
  const { dtype: _, ...rest } = spec;
  return rest as T;
}

async function buildEngine(
  gpu: Gpu,
  spec: DeviceSpec,
  { vocabulary }: Surroundings,
): Promise<Omit<DeviceEngine, 'tiles'>> {
  const { config, weights, judge } = spec;
  const half = spec.dtype === 'float16';
  const { isHere: rollout, sends } = rolloutPlace(spec);
  if (spec.gpuTimes) gpu.startTimer();
  const [model] = await Promise.all([
    loadModel(gpu, config, positionsOf(spec), weights, policyOptions(spec)),
    rollout && !half
      ? prepareFirstTokens(gpu, config)
      : prepareKernels(gpu, config, {
          rollout,
          half,
          training: (spec.use ?? 'train') === 'train',
        }),
  ]);
  if (spec.adapter) model.lora?.weights.importTensors(spec.adapter);
  const trainer = await createModelEngine(gpu, model, spec);
  const reference = spec.withReference ? await referenceOf(trainer, model, gpu, spec) : undefined;
  const judgeModel = spec.judgeModel && (await judgeOf(gpu, spec, spec.judgeModel));
  const decides = judgeModel?.model ?? reference?.model;
  return {
    gpu,
    adapter: gpu.adapter,
    model: trainer,
    ...rolloutOf(gpu, model, spec, vocabulary),
    ...(sends && { sender: new DeviceSender(gpu, model) }),
    ...(reference && { reference: reference.engine }),
    ...(judgeModel && spec.judgePositions !== undefined && { judgeModel: judgeModel.engine }),
    ...(decides && judge && { judge: new WgslRolloutEngine(gpu, decides, judge) }),
    destroy: () => gpu.destroy(),
  };
}

/** Rollout, by the policy's own weights or a copy of them, and what brings weights to it. */
function rolloutOf(
  gpu: Gpu,
  policy: LlamaModel,
  spec: DeviceSpec,
  vocabulary: Surroundings['vocabulary'],
): Pick<DeviceEngine, 'rollout' | 'checkpointEngine' | 'receiver'> {
  const { isHere, hasCopy, receives } = rolloutPlace(spec);
  if (!spec.rollout || !isHere) return { rollout: noRollout };
  const { preemption, kvCache, asyncScheduling, repeatable, speculative } = spec;
  const options = { preemption, kvCache, asyncScheduling, repeatable, vocabulary, speculative };
  const model = hasCopy ? allocateCopy(gpu, policy) : policy;
  const rollout = new WgslRolloutEngine(gpu, model, spec.rollout, options);
  const changeWeights = rollout.changeWeights.bind(rollout);
  if (receives) return { rollout, receiver: new DeviceReceiver(gpu, model, changeWeights) };
  if (!hasCopy) return { rollout };
  copyTrained(gpu, policy, model);
  return { rollout, checkpointEngine: copiedWeights(gpu, { policy, copy: model, rollout }) };
}

async function createModelEngine(gpu: Gpu, model: LlamaModel, spec: DeviceSpec): Promise<ModelEngine> {
  const { engine, maxTokenLen, enableGradientCheckpointing, optimizer } = spec;
  if (engine === 'wgsl') return new WgslEngine(gpu, model, maxTokenLen, { enableGradientCheckpointing, optimizer });
  if (spec.lora) throw new InputError('Engine "tfjs" trains every weight and no adapters. Use engine "wgsl" for LoRA.');
  return createRegisteredTfjs(gpu, model, maxTokenLen, { optimizer });
}

/** A model of its own that judges; it keeps no activations, since it only scores. */
async function judgeOf(gpu: Gpu, spec: DeviceSpec, { config, weights }: JudgeWeights): Promise<FrozenModel> {
  const { maxPositions, maxTokenLen } = judgeLengths(spec, config);
  const model = await loadModel(gpu, config, maxPositions, weights, referenceOptions(spec));
  return { engine: new WgslEngine(gpu, model, maxTokenLen, JUDGE_OPTIONS), model };
}

type JudgeWeights = NonNullable<DeviceSpec['judgeModel']>;

interface FrozenModel {
  engine: ModelEngine;
  model: LlamaModel;
}

/** With adapters the frozen base is there already; without, a copy of the start weights is made. */
async function referenceOf(trainer: ModelEngine, policy: LlamaModel, gpu: Gpu, spec: DeviceSpec): Promise<FrozenModel> {
  if (spec.lora && trainer instanceof WgslEngine) {
    const { lora: _, ...model } = policy;
    return { engine: trainer.referencePolicy(), model };
  }
  const model = await loadModel(gpu, spec.config, positionsOf(spec), spec.weights, referenceOptions(spec));
  return { engine: new WgslEngine(gpu, model, spec.maxTokenLen), model };
}

const refuseRollout = (): Promise<never> =>
  Promise.reject(new Error('This engine was made without rollout: for supervised training, or beside one.'));
const noRollout: TrainerEngine['rollout'] = {
  generate: refuseRollout,
  release: () => {},
  abort: () => {},
  resetCache: () => {},
  pause: () => Promise.resolve(),
  resume: () => {},
  idle: () => Promise.resolve(),
  drawnSoFar: refuseRollout,
  takeStats: refuseRollout,
};
