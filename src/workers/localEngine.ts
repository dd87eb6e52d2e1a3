/** Builds a complete engine in this thread, on one GPUDevice: weights, policy trainer, reference and rollout. */

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
import { checkBindings, checkPlan, fitted, otherBytes, type PlanItem, type Sizes, withAdvice } from './memoryPlan.ts';
import {
  checkPositions,
  JUDGE_OPTIONS,
  judgeLengths,
  policyOptions,
  positionsOf,
  referenceOptions,
  rolloutPlace,
} from './modelOptions.ts';
import { createRegisteredTfjs } from './tfjsEngine.ts';

export { type DeviceSpec, engineSizes, type EngineSpec, loraOf, policySizes } from './engineSpec.ts';

/** The parts of an engine that are in its device's thread. The tokenizer stays with the controller. */
export interface DeviceEngine extends Omit<TrainerEngine, 'tokenizer'> {
  gpu: Gpu;
  adapter: AdapterSummary;
  /** Sender of weights, on the training device. Only if rollout is on another device. */
  sender?: WeightSender;
  /** Receiver of weights, on the rollout device. Only if training is on another device. */
  receiver?: WeightReceiver;
  /** Source of the table by which kernels are chosen: built in, pinned, timed or stored. */
  tiles: TableSource;
  destroy(): void;
}

/** An engine in this thread. */
export type LocalEngine = DeviceEngine & TrainerEngine;

/**
 * Creates an engine in this thread, on a new device. Throws InputError for settings that exclude each other, NoAdapterError without an
 * adapter, and OutOfMemoryError with the sizes.
 * @param tuning store of kernel tables. Without a store, an adapter whose kernels must be timed is timed at each start
 */
export async function createLocalEngine(
  spec: EngineSpec,
  tuning?: FileStore,
  around?: Pick<Surroundings, 'machineBytes' | 'onPlan'>,
): Promise<LocalEngine> {
  const { tokenizerJson, chatTemplateKwargs } = spec;
  const tokenizer = modelTokenizer(spec, chatTemplateKwargs);
  const { judgeModel } = spec;
  const judgeTokenizer = judgeModel && modelTokenizer(judgeModel);
  const vocabulary = () => vocabularyOf(tokenizerJson);
  const device = await createDeviceEngine(spec, { ...around, vocabulary, tuning: async () => tuning });
  return { ...device, tokenizer, ...(judgeTokenizer && { judgeTokenizer }) };
}

/** Callbacks and limits that the program passes to an engine. Each callback is called when the engine first needs its result. */
interface Surroundings {
  /** Returns the vocabulary for stop strings and constrained tool calls. Undefined: requests with these are refused. */
  vocabulary?: () => Vocabulary;
  /** Store of kernel tables. */
  tuning?: () => Promise<FileStore | undefined>;
  /** Memory of the machine, which limits an engine without maxMemoryMib. Default: Infinity (unknown). */
  machineBytes?: number;
  /** Called with the sizes that fit this device, and the plan of their memory, before the weights are read. */
  onPlan?: (sizes: Sizes, items: PlanItem[]) => void;
}

/** Creates the parts of an engine that are on its device. Throws like `createLocalEngine`. */
export async function createDeviceEngine(asked: DeviceSpec, around: Surroundings = {}): Promise<DeviceEngine> {
  const cap = asked.maxMemoryMib ? asked.maxMemoryMib * 2 ** 20 : undefined;
  const gpu = await Gpu.create({ maxBytes: cap ?? Infinity });
  try {
    const maxBytes = cap ?? around.machineBytes ?? Infinity;
    const { adapter: adapterSummary, maxArenaBytes } = gpu;
    const sizes = fitted({ ...(await withOfferedDtype(asked)), adapterSummary, maxArenaBytes }, maxBytes);
    checkPositions(sizes);
    const items = checkPlan(sizes, maxBytes);
    checkBindings(sizes, maxArenaBytes);
    gpu.maxBytes -= otherBytes(items);
    around.onPlan?.(sizes, items);
    const tiles = await applyTuning(gpu, sizes.kernelTuning ?? 'auto', around.tuning);
    const engine = await buildEngine(gpu, sizes, around).catch((error: unknown) => {
      throw error instanceof OutOfMemoryError ? withAdvice(error, sizes) : error;
    });
    await gpu.idle(); // reports a lost device here instead of in the first step
    return { ...engine, tiles, ...(sizes.lowered && { lowered: sizes.lowered }) };
  } catch (error) {
    gpu.destroy();
    throw error;
  }
}

/** Returns the spec with the dtype that this adapter supports: float32 if it lacks shader-f16. */
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
    destroy: () => trainer.destroy(),
  };
}

/** Creates the rollout server and its checkpoint engine. Rollout samples from the policy's own weights or from a copy. */
function rolloutOf(
  gpu: Gpu,
  policy: LlamaModel,
  spec: DeviceSpec,
  vocabulary: Surroundings['vocabulary'],
): Pick<DeviceEngine, 'rollout' | 'checkpointEngine' | 'receiver'> {
  const { isHere, hasCopy, receives } = rolloutPlace(spec);
  if (!spec.rollout || !isHere) return { rollout: noRollout };
  const { preemption, kvCache, repeatable, speculative } = spec;
  const options = { preemption, kvCache, repeatable, vocabulary, speculative };
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

/** Creates a separate judge model. It stores activations of one layer only, because it is never trained. */
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

/** Creates the reference model. With adapters, it uses the frozen base weights; otherwise it gets a copy of the start weights. */
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
