/** Implements EngineApi in the worker: one device with the training half and the rollout half of the engine. */

import * as Comlink from 'comlink';
import type { GpuCounters } from '../gpu/device.ts';
import type { WeightSource } from '../model/checkpoint/open.ts';
import type { DrawBounds, ModelEngine, TensorMap, TokenOutputs } from '../model/engine.ts';
import { opfsStore } from '../model/checkpoint/opfs.ts';
import type { Vocabulary } from '../model/tokenizer/vocabulary.ts';
import type { GenerateRequest, RolloutEngine } from '../rollout/types.ts';
import type { DeviceSpec } from './engineSpec.ts';
import type { EngineApi, EngineDescription, ModelRole, RemoteDeviceSpec } from './engineApi.ts';
import type { createDeviceEngine, DeviceEngine } from './localEngine.ts';

/** Engine that a worker serves. */
export interface HostedEngine extends Omit<DeviceEngine, 'gpu' | 'tiles'> {
  gpu: {
    counters: GpuCounters;
    /** Resolves when the device is lost, with the reason. */
    device: { lost: Promise<Pick<GPUDeviceLostInfo, 'reason' | 'message'>> };
  };
}

/** @param create creates the engine when `load` is called: `createDeviceEngine`, or a replacement in tests */
export function createEngineHost(
  create: (...args: Required<Parameters<typeof createDeviceEngine>>) => Promise<HostedEngine>,
): EngineApi {
  let engine: HostedEngine | undefined;
  const loaded = (): HostedEngine => {
    if (!engine) throw new Error('The engine worker was called before load().');
    return engine;
  };
  /** Weights of opened models by the model's address, the most recently opened last. */
  const opened = new Map<string, WeightSource>();
  const openedWeights = (address: string | undefined): WeightSource => {
    const weights = address === undefined ? undefined : opened.get(address);
    if (!weights) throw new Error('The engine worker was to load a model before openModel() had opened it.');
    return weights;
  };
  const withWeights = ({ weights, judgeModel, ...spec }: RemoteDeviceSpec): DeviceSpec => ({
    ...spec,
    weights: weights === 'opened' ? openedWeights([...opened.keys()].at(-1)) : weights,
    ...(judgeModel && {
      judgeModel: {
        config: judgeModel.config,
        weights: 'opened' in judgeModel.weights ? openedWeights(judgeModel.weights.opened) : judgeModel.weights,
      },
    }),
  });
  let vocabulary: Vocabulary | undefined;
  const vocabularyInUse = (): Vocabulary => {
    if (!vocabulary)
      throw new Error('The engine worker got stop strings or constrained tool calls before useVocabulary().');
    return vocabulary;
  };
  const model = (role: ModelRole): ModelEngine => {
    const { model: policy, reference, judgeModel } = loaded();
    const found = { policy, reference, judge: judgeModel }[oneOf(role, ROLES)];
    if (!found) throw new Error(`The engine worker was loaded without a ${role} model.`);
    return found;
  };
  const rollout = (role: ModelRole): RolloutEngine => {
    const found = oneOf(role, ROLES) === 'policy' ? loaded().rollout : loaded().judge;
    if (!found) throw new Error('The engine worker was loaded without a judge.');
    return found;
  };
  const part = <K extends 'checkpointEngine' | 'sender' | 'receiver'>(name: K): NonNullable<HostedEngine[K]> => {
    const found = loaded()[name];
    if (!found) throw new Error(`The engine worker was loaded without a ${name}. See rolloutWeights of its spec.`);
    return found;
  };
  const describe = async (): Promise<EngineDescription> => {
    const { gpu, adapter, model, lowered } = loaded();
    return { adapter, config: model.config, counters: { ...gpu.counters }, ...(lowered && { lowered }) };
  };
  return {
    async openModel(address, endpoint, onProgress) {
      const { openInOpfs } = await import('./openInOpfs.ts');
      const { weights, ...model } = await openInOpfs(address, { endpoint, onProgress });
      opened.delete(address);
      opened.set(address, weights);
      return model;
    },
    async load(spec) {
      if (engine) throw new Error('The engine worker is already loaded. Call destroy() before another load().');
      engine = await create(withWeights(spec), { vocabulary: vocabularyInUse, tuning: keptTables });
      return describe();
    },
    describe,
    async untilLost() {
      const { reason, message } = await loaded().gpu.device.lost;
      return { reason, message };
    },
    logProbs: async (role, batch, temperature) => moved(await model(role).logProbs(batch, { temperature })),
    async drawBounds(batch, temperature) {
      const policy = model('policy');
      if (!policy.drawBounds)
        throw new Error(`The ${policy.name} engine cannot report which random numbers sample a token.`);
      return moved(await policy.drawBounds(batch, { temperature }));
    },
    forwardBackward: async (batch, loss, temperature) =>
      moved(await model('policy').forwardBackward(batch, loss, { temperature })),
    optimizerStep: (options) => model('policy').optimizerStep(options),
    zeroGrad: () => model('policy').zeroGrad(),
    async exportState(what) {
      oneOf(what, [...STATES, 'gradients']);
      const policy = model('policy');
      if (what === 'reference') return movedTensors(await model('reference').exportWeights());
      if (what === 'weights') return movedTensors(await policy.exportWeights());
      return movedTensors(await (what === 'optimizer' ? policy.exportOptimizer() : policy.exportGradients()));
    },
    importState: (what, tensors) => {
      if (oneOf(what, STATES) === 'optimizer') return model('policy').importOptimizer(tensors);
      return model(what === 'weights' ? 'policy' : 'reference').importWeights(tensors);
    },
    useVocabulary: async (given) => {
      vocabulary = given;
    },
    generate: (role, requests, onDone, watch, onTokens) =>
      generateAll(rollout(role), watched(requests, watch?.indices ?? [], onTokens), onDone),
    release: async (role, ids) => {
      const engine = rollout(role);
      for (const id of ids) engine.release(id);
    },
    abort: async (role, ids) => rollout(role).abort(ids),
    resetCache: async (role, weightVersion) => rollout(role).resetCache(weightVersion),
    drawnSoFar: async (role, ids) => rollout(role).drawnSoFar(ids),
    pause: async (role) => rollout(role).pause(),
    resume: async (role) => rollout(role).resume(),
    idle: async (role, maxMs) => rollout(role).idle(maxMs),
    takeStats: async (role) => rollout(role).takeStats(),
    updateWeights: async (version) => part('checkpointEngine').updateWeights(version),
    openSend: async (options) => part('sender').openSend(options),
    async sendWeights(bucket) {
      const data = await part('sender').sendWeights(bucket);
      return data && Comlink.transfer(data, [data]);
    },
    openReceive: async (tensors, bucketBytes) => part('receiver').openReceive(tensors, bucketBytes),
    receiveWeights: async (bucket, data) => part('receiver').receiveWeights(bucket, data),
    useWeights: async (version, count) => part('receiver').useWeights(version, count),
    dropWeights: async () => part('receiver').dropWeights(),
    async destroy() {
      engine?.destroy();
      engine = undefined;
    },
  };
}

const ROLES = ['policy', 'reference', 'judge'] as const;
const STATES = ['weights', 'reference', 'optimizer'] as const;

/**
 * Throws unless the value is one of the allowed ones. A message can have any value, and code that compares it with all but one allowed
 * value would accept an unknown one.
 */
function oneOf<T>(value: T, allowed: readonly T[]): T {
  if (allowed.includes(value)) return value;
  throw new TypeError(`The engine worker was asked for ${JSON.stringify(value)}; allowed: ${allowed.join(', ')}.`);
}

/**
 * Returns the store of kernel tables. Undefined if the browser stores no files, as in some private windows. Kernels are then timed at each
 * start.
 */
const keptTables = () => opfsStore('kernels').catch(() => undefined);

/** Returns requests whose `onTokens` sends the tokens to the controller, because a function cannot be sent to a worker. */
const watched = (
  requests: GenerateRequest[],
  indices: readonly number[],
  onTokens?: (index: number, tokenIds: readonly number[]) => void,
): GenerateRequest[] =>
  requests.map((request, i) =>
    indices.includes(i) ? { ...request, onTokens: (ids: readonly number[]) => onTokens?.(i, ids) } : request,
  );

async function generateAll(
  rollout: RolloutEngine,
  requests: GenerateRequest[],
  onDone: Parameters<EngineApi['generate']>[2],
): Promise<void> {
  await Promise.all(
    requests.map(async (request, i) => {
      const result = await rollout.generate(request).catch((error: unknown) => {
        const { name, message } = error instanceof Error ? error : new Error(String(error));
        return { name, message };
      });
      await (onDone(i, result) as unknown as Promise<void>); // a comlink proxy: the call itself is a message
    }),
  );
}

/** Marks the buffers of a result, so that they are transferred to the controller instead of copied. */
const moved = <T extends TokenOutputs | DrawBounds>(out: T): T =>
  Comlink.transfer(
    out,
    Object.values<Float32Array>({ ...out }).map(({ buffer }) => buffer as ArrayBuffer),
  );

function movedTensors(tensors: TensorMap): TensorMap {
  const buffers = new Set([...tensors.values()].map(({ data }) => data.buffer as ArrayBuffer));
  return Comlink.transfer(tensors, [...buffers]);
}
