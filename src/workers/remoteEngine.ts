/**
 * The controller's side of an engine in a worker: the same interfaces as an engine in this thread. comlink never rejects
 * when its worker dies, so every call here also waits for the worker's death.
 */

import * as Comlink from 'comlink';
import type { TrainerEngine } from '../grpo/types.ts';
import type { DownloadProgress } from '../model/checkpoint/download.ts';
import type { ModelEngine } from '../model/engine.ts';
import { ChatTokenizer } from '../model/tokenizer/chat.ts';
import { vocabularyOf } from '../model/tokenizer/vocabulary.ts';
import type { GenerateRequest, Generation, RolloutEngine } from '../rollout/types.ts';
import type { EngineApi, EngineDescription, ModelRole, OpenedModel } from './engineApi.ts';
import type { EngineSpec } from './engineSpec.ts';

export interface RemoteEngine extends TrainerEngine {
  description: EngineDescription;
  /** Fresh counters and sizes. */
  describe(): Promise<EngineDescription>;
  /** Frees the device and ends the worker. */
  destroy(): Promise<void>;
}

/** The worker is gone; what it was asked will not be answered. */
export class WorkerDiedError extends Error {
  override name = 'WorkerDiedError';
}

/**
 * Has a worker download a model (`org/name`, or the URL of a folder) into the browser's own file system and open it there.
 * The result goes into a spec with weights: 'opened'; the weights are read by the worker, piece by piece, when the
 * engine is made, and never cross. `onProgress` hears of both. Throws InputError.
 */
export async function openRemoteModel(
  worker: Worker,
  address: string,
  { endpoint, onProgress = () => {} }: { endpoint?: string; onProgress?: (progress: DownloadProgress) => void } = {},
): Promise<OpenedModel> {
  const api = apiOf(worker);
  return orDeath(worker)(api.openModel(address, endpoint, Comlink.proxy(onProgress)));
}

/** As EngineSpec; 'opened' = the weights of the model that `openRemoteModel` opened in the worker. */
export type RemoteEngineSpec = Omit<EngineSpec, 'weights'> & { weights: EngineSpec['weights'] | 'opened' };

/** Loads the engine into a worker that runs `engine.worker.ts`. */
export async function createRemoteEngine(worker: Worker, spec: RemoteEngineSpec): Promise<RemoteEngine> {
  const { tokenizerJson, tokenizerConfigJson, chatTemplateKwargs = {}, ...rest } = spec;
  const api = apiOf(worker);
  const alive = orDeath(worker);
  const description = await alive(api.load(rest));
  const model = remoteModel(api, alive, 'policy', description);
  return {
    description,
    describe: () => alive(api.describe()),
    tokenizer: new ChatTokenizer(tokenizerJson, tokenizerConfigJson, { chatTemplateKwargs }),
    model,
    rollout: remoteRollout(api, alive, 'policy', tokenizerJson),
    ...(spec.withReference && { reference: remoteModel(api, alive, 'reference', description) }),
    ...(spec.judge && { judge: remoteRollout(api, alive, 'reference', tokenizerJson) }),
    async destroy() {
      await alive(api.destroy());
      worker.terminate();
    },
  };
}

const apis = new WeakMap<Worker, Comlink.Remote<EngineApi>>();

/** One for a worker, as long as it is there: where comlink sees one collected, it tells the worker to stop listening. */
function apiOf(worker: Worker): Comlink.Remote<EngineApi> {
  const api = apis.get(worker) ?? Comlink.wrap<EngineApi>(worker);
  apis.set(worker, api);
  return api;
}

type Alive = <T>(call: Promise<T>) => Promise<T>;

/** Wraps calls so that they reject when the worker dies or a message cannot be read. */
function orDeath(worker: Worker): Alive {
  let fail: (error: Error) => void = () => {};
  const death = new Promise<never>((_, reject) => (fail = reject));
  death.catch(() => {}); // someone is told through a call; without one there is nobody to tell
  worker.addEventListener('error', (event) => fail(new WorkerDiedError(`The engine worker died: ${event.message}.`)));
  worker.addEventListener('messageerror', () =>
    fail(new WorkerDiedError('A message to the engine worker was unreadable.')),
  );
  return (call) => Promise.race([call, death]);
}

function remoteModel(
  api: Comlink.Remote<EngineApi>,
  alive: Alive,
  role: ModelRole,
  { config }: EngineDescription,
): ModelEngine {
  const weights = role === 'policy' ? 'weights' : 'reference';
  return {
    name: 'wgsl',
    config,
    logProbs: (batch, { temperature }) => alive(api.logProbs(role, batch, temperature)),
    forwardBackward: (batch, loss, { temperature }) => alive(api.forwardBackward(batch, loss, temperature)),
    optimizerStep: (options) => alive(api.optimizerStep(options)),
    exportWeights: () => alive(api.exportState(weights)),
    importWeights: (tensors) => alive(api.importState(weights, tensors)),
    exportOptimizer: () => alive(api.exportState('optimizer')),
    importOptimizer: (tensors) => alive(api.importState('optimizer', tensors)),
    exportGradients: () => alive(api.exportState('gradients')),
    destroy: () => void api.destroy(),
  };
}

/** Requests of one task travel in one message; each answer comes back as soon as it is there. */
function remoteRollout(
  api: Comlink.Remote<EngineApi>,
  alive: Alive,
  role: ModelRole,
  tokenizerJson: unknown,
): RolloutEngine {
  let vocabulary: Promise<void> | undefined;
  let queued: { request: GenerateRequest; resolve: (g: Generation) => void; reject: (e: unknown) => void }[] = [];
  const released: string[] = [];
  const send = () => {
    const batch = queued;
    queued = [];
    const onDone = Comlink.proxy((index: number, result: Generation | string) => {
      if (typeof result === 'string') batch[index].reject(new Error(result));
      else batch[index].resolve(result);
    });
    alive(
      api.generate(
        role,
        batch.map((b) => b.request),
        onDone,
      ),
    ).catch((error: unknown) => batch.forEach(({ reject }) => reject(error)));
  };
  const flushReleased = () => void api.release(role, released.splice(0));
  return {
    generate: (request) =>
      new Promise((resolve, reject) => {
        if (request.onTokens) throw new Error('onTokens does not cross to an engine in a worker.');
        if (request.sampling.stop?.length || request.sampling.toolCalls) {
          vocabulary ??= alive(api.useVocabulary(vocabularyOf(tokenizerJson)));
          vocabulary.catch(reject);
        }
        if (queued.push({ request, resolve, reject }) === 1) queueMicrotask(send);
      }),
    release: (requestId) => {
      if (released.push(requestId) === 1) queueMicrotask(flushReleased);
    },
    abort: (requestIds) => void api.abort(role, requestIds),
    resetCache: () => alive(api.resetCache(role)),
    pause: () => alive(api.pause(role)),
    resume: () => alive(api.resume(role)),
    takeStats: () => alive(api.takeStats(role)),
  };
}
