/** Builds the whole engine in this thread: device, weights, policy trainer, reference and rollout, on one GPUDevice. */

import { type AdapterSummary, Gpu, offersHalves } from '../gpu/device.ts';
import { OutOfMemoryError } from '../errors.ts';
import { isMeasured, matmulTiles } from '../gpu/ops/matmul.ts';
import type { TrainerEngine } from '../grpo/types.ts';
import type { ModelEngine } from '../model/engine.ts';
import { InputError } from '../errors.ts';
import type { FileStore } from '../model/checkpoint/store.ts';
import type { LlamaModel } from '../model/forward.ts';
import type { MatrixForm } from '../model/weights/gpuWeights.ts';
import type { TableSource } from '../model/kernels/tuning.ts';
import { loadModel } from '../model/weights/load.ts';
import { prepareFirstTokens, prepareKernels } from '../model/kernels/prepare.ts';
import { ChatTokenizer } from '../model/tokenizer/chat.ts';
import { type Vocabulary, vocabularyOf } from '../model/tokenizer/vocabulary.ts';
import { WgslEngine } from '../model/wgslEngine.ts';
import { WgslRolloutEngine } from '../rollout/server/server.ts';
import type { EngineSpec } from './engineSpec.ts';
import { advice, checkBindings, checkPlan, frozenForm, type Sizes } from './memoryPlan.ts';
import { policyGradient } from './policyGradient.ts';

export { engineSizes, type EngineSpec, loraOf } from './engineSpec.ts';

/** What a device holds; the tokenizer stays with the controller. */
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
  const tokenizer = new ChatTokenizer(spec.tokenizerJson, spec.tokenizerConfigJson);
  const vocabulary = () => vocabularyOf(spec.tokenizerJson);
  return { ...(await createDeviceEngine(spec, { vocabulary, tuning: async () => tuning })), tokenizer };
}

export type DeviceSpec = Omit<EngineSpec, 'tokenizerJson' | 'tokenizerConfigJson'>;

/** What an engine asks its surroundings for, when it needs it. */
export interface Surroundings {
  /** For requests that look into tokens; absent = they are refused. */
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
    const tiles = await chooseTiles(gpu, spec, around);
    const engine = await buildEngine(gpu, spec, around).catch((error: unknown) => {
      throw error instanceof OutOfMemoryError ? withAdvice(error, sizes) : error;
    });
    return { ...engine, tiles };
  } catch (error) {
    gpu.destroy();
    throw error;
  }
}

/** The choice by timing is loaded where something is to be chosen: nothing is where the built-in table was measured. */
async function chooseTiles(
  gpu: Gpu,
  { kernelTuning = 'auto' }: DeviceSpec,
  { tuning }: Surroundings,
): Promise<TableSource> {
  if (kernelTuning === 'off' || (kernelTuning === 'auto' && isMeasured(gpu))) return 'built in';
  const { applyTuning } = await import('../model/kernels/tuning.ts');
  return applyTuning(gpu, matmulTiles, kernelTuning, await tuning?.());
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

/** What the device has cannot be asked for, so its own refusal is where a run without a cap learns of it. */
const withAdvice = (error: OutOfMemoryError, sizes: Sizes): OutOfMemoryError =>
  new OutOfMemoryError(`${error.message} ${advice(sizes)}`, { cause: error });

async function buildEngine(
  gpu: Gpu,
  spec: DeviceSpec,
  { vocabulary }: Surroundings,
): Promise<Omit<DeviceEngine, 'tiles'>> {
  const { config, weights, lora, preemption, asyncScheduling, speculative, judge } = spec;
  const half = spec.dtype === 'float16';
  if (half) await gpu.useHalves();
  if (spec.gpuTimes) gpu.startTimer();
  const [model] = await Promise.all([
    loadModel(gpu, config, positionsOf(spec), weights, lora, matrixForm(spec), half),
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

/** How the matrices are kept. Throws InputError for fewer bits where they are trained. */
function matrixForm(spec: DeviceSpec): MatrixForm | undefined {
  const { weightFormat, lora, use = 'train' } = spec;
  if (lora || use !== 'train') return frozenForm(spec);
  if (!weightFormat) return spec.dtype && 'trainedHalf';
  throw new InputError(
    `model.quantization is "${weightFormat}", which freezes the weights, but they are to be trained; set model.loraRank or leave it out.`,
  );
}

async function createModelEngine(gpu: Gpu, model: LlamaModel, spec: DeviceSpec): Promise<ModelEngine> {
  const { engine, maxTokenLen, enableGradientCheckpointing } = spec;
  if (engine === 'wgsl') return new WgslEngine(gpu, model, maxTokenLen, { enableGradientCheckpointing });
  if (spec.lora) throw new InputError('Engine "tfjs" trains every weight and no adapters; use engine "wgsl" for LoRA.');
  const { createTfjsEngine } = await import('../model/tfjs/engine.ts');
  return createTfjsEngine(gpu, model, maxTokenLen, { policyGradient });
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
  const half = spec.dtype === 'float16';
  const model = await loadModel(
    gpu,
    spec.config,
    positionsOf(spec),
    spec.weights,
    undefined,
    half ? 'half' : undefined,
    half,
  );
  return { engine: new WgslEngine(gpu, model, spec.maxTokenLen), model };
}

/** The longest sequence of all. Throws InputError where a judge's is longer than the model has positions. */
function positionsOf({ judge, maxPositions, config: { maxPositionEmbeddings } }: DeviceSpec): number {
  if (!judge) return maxPositions;
  const longest = judge.maxPromptLength + judge.slotCapacity;
  if (longest <= maxPositionEmbeddings) return Math.max(maxPositions, longest);
  throw new InputError(
    `The judge's prompt and reply may have ${longest} tokens, but the model has ${maxPositionEmbeddings} positions; ` +
      'lower reward.judge.maxPromptLength.',
  );
}

const noRollout: TrainerEngine['rollout'] = {
  generate: () => Promise.reject(new Error('This engine was made for supervised training, without rollout.')),
  release: () => {},
  abort: () => {},
  resetCache: () => {},
  takeStats: () => Promise.reject(new Error('This engine was made for supervised training, without rollout.')),
};
