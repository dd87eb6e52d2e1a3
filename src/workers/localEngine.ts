/** Builds the whole engine in this thread: device, weights, policy trainer, reference and rollout, on one GPUDevice. */

import { type AdapterSummary, Gpu } from '../gpu/device.ts';
import type { TrainerEngine } from '../grpo/trainer.ts';
import type { ModelConfig } from '../model/config.ts';
import type { ModelEngine, TensorMap } from '../model/engine.ts';
import { createModel, type LlamaModel } from '../model/forward.ts';
import { ChatTokenizer } from '../model/tokenizer.ts';
import { createTfjsEngine } from '../model/tfjsEngine.ts';
import { WgslEngine } from '../model/wgslEngine.ts';
import { WgslRolloutEngine } from '../rollout/engine.ts';
import type { EngineSpec } from './engineSpec.ts';
import { checkPlan, planMemory } from './memoryPlan.ts';
import { policyGradient } from './policyGradient.ts';

export { engineSizes, type EngineSpec } from './engineSpec.ts';

/** What a device holds; the tokenizer stays with the controller. */
export interface DeviceEngine extends Omit<TrainerEngine, 'tokenizer'> {
  gpu: Gpu;
  adapter: AdapterSummary;
  destroy(): void;
}

export type LocalEngine = DeviceEngine & TrainerEngine;

export async function createLocalEngine(spec: EngineSpec): Promise<LocalEngine> {
  const tokenizer = new ChatTokenizer(spec.tokenizerJson, spec.tokenizerConfigJson);
  return { ...(await createDeviceEngine(spec)), tokenizer };
}

export type DeviceSpec = Omit<EngineSpec, 'tokenizerJson' | 'tokenizerConfigJson'>;

export async function createDeviceEngine(spec: DeviceSpec): Promise<DeviceEngine> {
  const { config, weights, maxPositions, maxTokenLen } = spec;
  const maxBytes = spec.maxMemoryMib ? spec.maxMemoryMib * 2 ** 20 : Infinity;
  checkPlan(planMemory(spec), maxBytes);
  const gpu = await Gpu.create({ maxBytes });
  const model = createModel(gpu, config, maxPositions);
  model.weights.importTensors(weights);
  const reference = spec.withReference ? frozenCopy(gpu, config, weights, spec) : undefined;
  return {
    gpu,
    adapter: gpu.adapter,
    model: await createModelEngine(gpu, model, spec.engine, maxTokenLen),
    rollout: spec.rollout ? new WgslRolloutEngine(gpu, model, spec.rollout) : noRollout,
    ...(reference && { reference }),
    destroy: () => gpu.destroy(),
  };
}

async function createModelEngine(
  gpu: Gpu,
  model: LlamaModel,
  engine: EngineSpec['engine'],
  maxTokenLen: number,
): Promise<ModelEngine> {
  if (engine === 'wgsl') return new WgslEngine(gpu, model, maxTokenLen);
  return createTfjsEngine(gpu, model, maxTokenLen, { policyGradient });
}

function frozenCopy(gpu: Gpu, config: ModelConfig, weights: TensorMap, spec: DeviceSpec): ModelEngine {
  const model = createModel(gpu, config, spec.maxPositions);
  model.weights.importTensors(weights);
  return new WgslEngine(gpu, model, spec.maxTokenLen);
}

const noRollout: TrainerEngine['rollout'] = {
  generate: () => Promise.reject(new Error('This engine was made for supervised training, without rollout.')),
  release: () => {},
  abort: () => {},
  resetCache: () => {},
  takeStats: () => Promise.reject(new Error('This engine was made for supervised training, without rollout.')),
};
