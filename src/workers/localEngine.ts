/** Builds the whole engine in this thread: device, weights, policy trainer, reference and rollout, on one GPUDevice. */

import { type AdapterSummary, Gpu } from '../gpu/device.ts';
import type { TrainerEngine } from '../grpo/trainer.ts';
import type { ModelEngine } from '../model/engine.ts';
import type { LlamaModel } from '../model/forward.ts';
import { loadModel } from '../model/loadModel.ts';
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
  const maxBytes = spec.maxMemoryMib ? spec.maxMemoryMib * 2 ** 20 : Infinity;
  checkPlan(planMemory(spec), maxBytes);
  const gpu = await Gpu.create({ maxBytes });
  try {
    return await buildEngine(gpu, spec);
  } catch (error) {
    gpu.destroy();
    throw error;
  }
}

async function buildEngine(gpu: Gpu, spec: DeviceSpec): Promise<DeviceEngine> {
  const { config, weights, maxPositions, maxTokenLen } = spec;
  const model = await loadModel(gpu, config, maxPositions, weights);
  const reference = spec.withReference ? await frozenCopy(gpu, spec) : undefined;
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

async function frozenCopy(gpu: Gpu, { config, weights, maxPositions, maxTokenLen }: DeviceSpec): Promise<ModelEngine> {
  return new WgslEngine(gpu, await loadModel(gpu, config, maxPositions, weights), maxTokenLen);
}

const noRollout: TrainerEngine['rollout'] = {
  generate: () => Promise.reject(new Error('This engine was made for supervised training, without rollout.')),
  release: () => {},
  abort: () => {},
  resetCache: () => {},
  takeStats: () => Promise.reject(new Error('This engine was made for supervised training, without rollout.')),
};
