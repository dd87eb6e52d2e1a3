/**
 * The controller's side of an engine in a worker. It has the same interfaces as an engine in this thread. comlink does not reject a call
 * when its worker dies, so every call here also waits for the worker's death.
 */

import * as Comlink from 'comlink';
import { DeviceLostError, GpuError, InputError, NoAdapterError, OutOfMemoryError } from '../errors.ts';
import type { TrainerEngine } from '../grpo/types.ts';
import type { DownloadProgress } from '../model/checkpoint/download.ts';
import type { ModelEngine } from '../model/engine.ts';
import type { WeightReceiver, WeightSender } from '../model/weights/stream.ts';
import { modelTokenizer } from '../model/tokenizer/modelTokenizer.ts';
import { vocabularyOf } from '../model/tokenizer/vocabulary.ts';
import { type GenerateRequest, type Generation, isConstrained, type RolloutEngine } from '../rollout/types.ts';
import type { EngineApi, EngineDescription, FailedGeneration, ModelRole, OpenedModel } from './engineApi.ts';
import type { EngineSpec, JudgeModel } from './engineSpec.ts';
import { rolloutPlace } from './modelOptions.ts';

export interface RemoteEngine extends TrainerEngine {
  /** Sender of weights, in the training worker. Only if rollout is in another worker. */
  sender?: WeightSender;
  /** Receiver of weights, in the rollout worker. Only if training is in another worker. */
  receiver?: WeightReceiver;
  /** Adapter, sizes and counters of the engine when it was created. */
  description: EngineDescription;
  /** Returns the adapter, sizes and current counters of the engine. */
  describe(): Promise<EngineDescription>;
  /** Rejects when the device is lost or the worker dies, even without a call in flight. */
  untilLost(): Promise<never>;
  /** Frees the device and ends the worker. */
  destroy(): Promise<void>;
}

/** The worker has died, so its pending calls will not be answered. */
export class WorkerDiedError extends Error {
  override name = 'WorkerDiedError';
}

/**
 * Makes a worker download a model (`org/name`, or the URL of a folder) into the browser's own file system and open it there. The result can
 * be used in a spec with weights: 'opened'. The worker reads the weights piece by piece when the engine is created, so they are never sent
 * between threads. `onProgress` is called during both the download and the reading of weights. Throws InputError.
 */
export async function openRemoteModel(
  worker: Worker,
  address: string,
  { endpoint, onProgress = () => {} }: { endpoint?: string; onProgress?: (progress: DownloadProgress) => void } = {},
): Promise<OpenedModel> {
  const api = apiOf(worker);
  return orDeath(worker)(api.openModel(address, endpoint, Comlink.proxy(onProgress)));
}

/**
 * Like EngineSpec, but weights can already be in the worker. 'opened' = the weights of the model that `openRemoteModel` opened last in the
 * worker. For a judge, `opened` is the address of such a model.
 */
export type RemoteEngineSpec = Omit<EngineSpec, 'weights' | 'judgeModel'> & {
  weights: EngineSpec['weights'] | 'opened';
  judgeModel?: Omit<JudgeModel, 'weights'> & { weights: JudgeModel['weights'] | { opened: string } };
};

/** Loads an engine into a worker that runs `engine.worker.ts`. */
export async function createRemoteEngine(worker: Worker, spec: RemoteEngineSpec): Promise<RemoteEngine> {
  const { tokenizerJson, tokenizerConfigJson: _, chatTemplateKwargs, judgeModel, ...others } = spec;
  // A spec can have the additional fields of an opened checkpoint if the caller has spread the checkpoint into it.
  const { sourceFiles: __, ...rest } = others as typeof others & Partial<OpenedModel>;
  const judgeTokenizer = judgeModel && modelTokenizer(judgeModel);
  const judgeWeights = judgeModel && { config: judgeModel.config, weights: judgeModel.weights };
  const api = apiOf(worker);
  const alive = orDeath(worker);
  const description = await alive(api.load({ ...rest, ...(judgeWeights && { judgeModel: judgeWeights }) }));
  const model = remoteModel(api, alive, 'policy', description);
  const { hasCopy, sends, receives } = rolloutPlace(spec);
  return {
    description,
    ...(description.lowered && { lowered: description.lowered }),
    describe: () => alive(api.describe()),
    async untilLost() {
      const { reason, message } = await alive(api.untilLost());
      throw new DeviceLostError(reason, message);
    },
    tokenizer: modelTokenizer(spec, chatTemplateKwargs),
    model,
    rollout: remoteRollout(api, alive, 'policy', tokenizerJson),
    ...(hasCopy && {
      checkpointEngine: { backend: 'copy', updateWeights: (version) => alive(api.updateWeights(version)) },
    }),
    ...(sends && { sender: remoteSender(api, alive) }),
    ...(receives && { receiver: remoteReceiver(api, alive) }),
    ...(spec.withReference && { reference: remoteModel(api, alive, 'reference', description) }),
    ...(judgeModel &&
      spec.judgePositions !== undefined && { judgeModel: remoteModel(api, alive, 'judge', judgeModel) }),
    ...(judgeTokenizer && { judgeTokenizer }),
    ...(spec.judge && { judge: remoteRollout(api, alive, 'reference', tokenizerJson) }),
    async destroy() {
      await alive(api.destroy());
      worker.terminate();
    },
  };
}

/** Resolves once the script of a worker has been loaded and answers. */
export const untilReady = (worker: Worker): Promise<unknown> =>
  (apiOf(worker) as unknown as { isReady: Promise<unknown> }).isReady; // comlink asks the worker for any property

const apis = new WeakMap<Worker, Comlink.Remote<EngineApi>>();

/**
 * Returns the comlink wrapper of a worker. A worker has one wrapper, which is stored as long as the worker exists, because a wrapper that
 * is garbage-collected tells its worker to stop listening.
 */
function apiOf(worker: Worker): Comlink.Remote<EngineApi> {
  const api = apis.get(worker) ?? Comlink.wrap<EngineApi>(worker);
  apis.set(worker, api);
  return api;
}

type Alive = <T>(call: Promise<T>) => Promise<T>;

/**
 * Returns a function that wraps calls, so that they also reject when the worker dies or a message cannot be read. Restores the classes of
 * errors.
 */
function orDeath(worker: Worker): Alive {
  let dead: Error | undefined;
  const waiting = new Set<(error: Error) => void>();
  const fail = (error: Error) => {
    dead ??= error;
    for (const reject of waiting) reject(dead);
  };
  worker.addEventListener('error', (event) => fail(new WorkerDiedError(`The engine worker died: ${event.message}.`)));
  worker.addEventListener('messageerror', () =>
    fail(new WorkerDiedError('A message to the engine worker was unreadable.')),
  );
  return async (call) => {
    if (dead) throw dead;
    let leave: (error: Error) => void = () => {};
    const death = new Promise<never>((_, reject) => waiting.add((leave = reject)));
    try {
      return await Promise.race([call, death]);
    } catch (error) {
      throw inOwnClass(error);
    } finally {
      waiting.delete(leave); // racing one shared promise would retain all past calls
    }
  };
}

const CLASSES = { DeviceLostError, GpuError, InputError, NoAdapterError, OutOfMemoryError };

/** Restores the class of an error, which is lost when the error is sent from the worker, so that callers can distinguish errors. */
function inOwnClass(error: unknown): unknown {
  if (!(error instanceof Error) || !Object.hasOwn(CLASSES, error.name)) return error;
  return Object.setPrototypeOf(error, CLASSES[error.name as keyof typeof CLASSES].prototype) as Error;
}

function remoteModel(
  api: Comlink.Remote<EngineApi>,
  alive: Alive,
  role: ModelRole,
  { config }: Pick<EngineDescription, 'config'>,
): ModelEngine {
  const weights = role === 'policy' ? 'weights' : 'reference';
  return {
    name: 'wgsl',
    config,
    logProbs: (batch, { temperature }) => alive(api.logProbs(role, batch, temperature)),
    ...(role === 'policy' && {
      drawBounds: (batch, { temperature }) => alive(api.drawBounds(batch, temperature)),
    }),
    forwardBackward: (batch, loss, { temperature }) => alive(api.forwardBackward(batch, loss, temperature)),
    optimizerStep: (options) => alive(api.optimizerStep(options)),
    zeroGrad: () => alive(api.zeroGrad()),
    exportWeights: () => alive(api.exportState(weights)),
    importWeights: (tensors) => alive(api.importState(weights, tensors)),
    exportOptimizer: () => alive(api.exportState('optimizer')),
    importOptimizer: (tensors) => alive(api.importState('optimizer', tensors)),
    exportGradients: () => alive(api.exportState('gradients')),
    destroy: () => void api.destroy(),
  };
}

const remoteSender = (api: Comlink.Remote<EngineApi>, alive: Alive): WeightSender => ({
  openSend: (options) => alive(api.openSend(options)),
  sendWeights: (bucket) => alive(api.sendWeights(bucket)),
});

const remoteReceiver = (api: Comlink.Remote<EngineApi>, alive: Alive): WeightReceiver => ({
  openReceive: (tensors, bucketBytes) => alive(api.openReceive(tensors, bucketBytes)),
  receiveWeights: (bucket, data) => alive(api.receiveWeights(bucket, Comlink.transfer(data, [data]))),
  useWeights: (version, count) => alive(api.useWeights(version, count)),
  dropWeights: () => alive(api.dropWeights()),
});

/**
 * Returns a rollout engine whose calls go to a worker. The requests of one task of the event loop are sent in one message. Each answer is
 * sent as soon as it is ready.
 */
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
    const onDone = Comlink.proxy((index: number, result: Generation | FailedGeneration) => {
      if ('tokenIds' in result) batch[index].resolve(result);
      else batch[index].reject(inOwnClass(Object.assign(new Error(result.message), result)));
    });
    const requests = batch.map(({ request }) => ({ ...request }));
    const indices = requests.flatMap(({ onTokens }, i) => (onTokens ? [i] : []));
    for (const request of requests) delete request.onTokens;
    const onTokens = (index: number, ids: readonly number[]) => batch[index].request.onTokens?.(ids);
    const generating =
      indices.length > 0
        ? api.generate(role, requests, onDone, { indices }, Comlink.proxy(onTokens))
        : api.generate(role, requests, onDone);
    alive(generating).catch((error: unknown) => batch.forEach(({ reject }) => reject(error)));
  };
  const flushReleased = () => void api.release(role, released.splice(0));
  return {
    generate: (request) =>
      new Promise((resolve, reject) => {
        if (request.sampling.stop?.length || isConstrained(request.sampling)) {
          vocabulary ??= alive(api.useVocabulary(vocabularyOf(tokenizerJson)));
          vocabulary.catch(reject);
        }
        if (queued.push({ request, resolve, reject }) === 1) queueMicrotask(send);
      }),
    release: (requestId) => {
      if (released.push(requestId) === 1) queueMicrotask(flushReleased);
    },
    // The abort is sent in a microtask: requests of the same task of the event loop are sent at the end of the task, and the abort must
    // arrive after them.
    abort: (requestIds) => queueMicrotask(() => void api.abort(role, requestIds)),
    resetCache: (weightVersion) => alive(api.resetCache(role, weightVersion)),
    drawnSoFar: (requestIds) => alive(api.drawnSoFar(role, requestIds)),
    pause: () => alive(api.pause(role)),
    resume: () => alive(api.resume(role)),
    idle: (maxMs) => alive(api.idle(role, maxMs)),
    takeStats: () => alive(api.takeStats(role)),
  };
}
