/** The worker's side of EngineApi: one device, both halves of the model. */

import * as Comlink from 'comlink';
import type { WeightSource } from '../model/checkpoint/open.ts';
import type { ModelEngine, TensorMap, TokenOutputs } from '../model/engine.ts';
import { opfsStore } from '../model/checkpoint/opfs.ts';
import type { Vocabulary } from '../model/tokenizer/vocabulary.ts';
import type { GenerateRequest, RolloutEngine } from '../rollout/types.ts';
import type { EngineApi, EngineDescription, ModelRole, RemoteDeviceSpec } from './engineApi.ts';
import { createDeviceEngine, type DeviceEngine } from './localEngine.ts';

export function createEngineHost(): EngineApi {
  let engine: DeviceEngine | undefined;
  const loaded = (): DeviceEngine => {
    if (!engine) throw new Error('The engine worker was called before load().');
    return engine;
  };
  let opened: WeightSource | undefined;
  const weightsOf = ({ weights }: RemoteDeviceSpec) => {
    if (weights !== 'opened') return weights;
    if (!opened) throw new Error('The engine worker was to load a model before openModel() had opened one.');
    return opened;
  };
  let vocabulary: Vocabulary | undefined;
  const vocabularyInUse = (): Vocabulary => {
    if (!vocabulary)
      throw new Error('The engine worker got stop strings or constrained tool calls before useVocabulary().');
    return vocabulary;
  };
  const model = (role: ModelRole): ModelEngine => {
    const found = role === 'policy' ? loaded().model : loaded().reference;
    if (!found) throw new Error('The engine worker was loaded without a reference model.');
    return found;
  };
  const rollout = (role: ModelRole): RolloutEngine => {
    const found = role === 'policy' ? loaded().rollout : loaded().judge;
    if (!found) throw new Error('The engine worker was loaded without a judge.');
    return found;
  };
  const describe = async (): Promise<EngineDescription> => {
    const { gpu, adapter, model } = loaded();
    return { adapter, config: model.config, counters: { ...gpu.counters } };
  };
  return {
    async openModel(address, endpoint, onProgress) {
      const { openInOpfs } = await import('./openInOpfs.ts');
      const { weights, ...model } = await openInOpfs(address, { endpoint, onProgress });
      opened = weights;
      return model;
    },
    async load(spec) {
      engine = await createDeviceEngine(
        { ...spec, weights: weightsOf(spec) },
        { vocabulary: vocabularyInUse, tuning: keptTables },
      );
      return describe();
    },
    describe,
    logProbs: async (role, batch, temperature) => moved(await model(role).logProbs(batch, { temperature })),
    forwardBackward: async (batch, loss, temperature) =>
      moved(await model('policy').forwardBackward(batch, loss, { temperature })),
    optimizerStep: (options) => model('policy').optimizerStep(options),
    async exportState(what) {
      const policy = model('policy');
      if (what === 'reference') return movedTensors(await model('reference').exportWeights());
      if (what === 'weights') return movedTensors(await policy.exportWeights());
      return movedTensors(await (what === 'optimizer' ? policy.exportOptimizer() : policy.exportGradients()));
    },
    importState: (what, tensors) => {
      if (what === 'optimizer') return model('policy').importOptimizer(tensors);
      return model(what === 'weights' ? 'policy' : 'reference').importWeights(tensors);
    },
    useVocabulary: async (given) => {
      vocabulary = given;
    },
    generate: (role, requests, onDone) => generateAll(rollout(role), requests, onDone),
    release: async (role, ids) => ids.forEach((id) => rollout(role).release(id)),
    abort: async (role, ids) => rollout(role).abort(ids),
    resetCache: async (role) => rollout(role).resetCache(),
    pause: async (role) => rollout(role).pause?.(),
    resume: async (role) => rollout(role).resume?.(),
    takeStats: async (role) => rollout(role).takeStats(),
    destroy: async () => loaded().destroy(),
  };
}

/** Undefined where the browser keeps no files, as in some private windows: kernels are then timed at each start. */
const keptTables = () => opfsStore('kernels').catch(() => undefined);

async function generateAll(
  rollout: RolloutEngine,
  requests: GenerateRequest[],
  onDone: Parameters<EngineApi['generate']>[2],
): Promise<void> {
  await Promise.all(
    requests.map(async (request, i) => {
      const result = await rollout
        .generate(request)
        .catch((error: unknown) => String((error as Error).message ?? error));
      await (onDone(i, result) as unknown as Promise<void>); // a comlink proxy: the call itself is a message
    }),
  );
}

/** Marks the buffers as moved, not copied. */
const moved = (out: TokenOutputs): TokenOutputs =>
  Comlink.transfer(out, [out.logProbs.buffer as ArrayBuffer, out.entropy.buffer as ArrayBuffer]);

function movedTensors(tensors: TensorMap): TensorMap {
  const buffers = new Set([...tensors.values()].map(({ data }) => data.buffer as ArrayBuffer));
  return Comlink.transfer(tensors, [...buffers]);
}
