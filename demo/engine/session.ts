/** An engine in its own worker, with a model and a task. It outlives a run, so that the trained model can still be asked. */

import '../../src/modelParts.ts';
import '../../src/trainerParts.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { DownloadProgress } from '../../src/model/checkpoint/download.ts';
import type { Task } from '../../src/tasks/task.ts';
import { engineSizes, judgeCheckpoint, loraOf } from '../../src/workers/engineSpec.ts';
import type { LoraConfig } from '../../src/model/lora/weights.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { createRemoteEngine, type RemoteEngine, type RemoteEngineSpec } from '../../src/workers/remoteEngine.ts';
import { splitEngine, splitSpecs, streamOptions } from '../../src/workers/splitEngine.ts';
import { isShipped } from './configs.ts';
import { startEngineWorker } from './engineWorker.ts';
import { fetchModel, fetchTemplate, type LoadedModel } from './files.ts';
import { openTask } from './openTask.ts';
import { warmStart, warmStartName } from './startModel.ts';

interface SessionOptions {
  /** Server of models that are not shipped with the page; undefined = huggingface.co. */
  hub: string | undefined;
  /** Called during downloads from other servers, then during uploads to the GPU. */
  onDownload(progress: DownloadProgress): void;
}

interface SessionParts {
  config: TrainConfig;
  hub: string | undefined;
  /** The training worker; with trainer.placement: split, also the generating one. */
  workers: Worker[];
  died: Promise<never>;
  engine: RemoteEngine;
  model: LoadedModel<unknown>;
  task: Task;
}

/** An open engine with its model and task. */
export class Session {
  /** Config with which the session was opened. */
  readonly config: TrainConfig;
  /** Server from which the model was loaded; undefined = huggingface.co. */
  readonly hub: string | undefined;
  readonly engine: RemoteEngine;
  /** The model as it was when loaded. The current weights are in `engine`. */
  readonly model: LoadedModel<unknown> & { base: string };
  /** Settings of the adapter (LoRA); undefined if all weights are trained. */
  readonly lora: LoraConfig | undefined;
  readonly task: Task;
  /** Rejects when a worker dies, its GPU is lost, or the session is closed, because calls to an ended worker never resolve. */
  readonly failed: Promise<never>;
  /** True while the engine holds the start weights, which are evaluated between steps. */
  evaluatesStart = false;
  isClosed = false;
  readonly #workers: Worker[];
  #tellClosed: (error: Error) => void = () => {};

  private constructor({ config, hub, workers, died, engine, model, task }: SessionParts) {
    [this.config, this.hub, this.engine, this.task, this.lora] = [config, hub, engine, task, loraOf(config)];
    this.model = { ...model, base: config.model.path };
    const closed = new Promise<never>((_, reject) => (this.#tellClosed = reject));
    this.failed = Promise.race([died, engine.untilLost(), closed]);
    this.failed.catch(() => {}); // users of the session get the error
    this.#workers = workers;
  }

  /** Opens a session. Rejects if that fails, a worker dies, or `givenUp` rejects. The workers are then ended. */
  static async open(config: TrainConfig, options: SessionOptions, givenUp: Promise<never>): Promise<Session> {
    const made = await warmStartOf(config, givenUp);
    const started = [startEngineWorker()];
    if (config.trainer.placement === 'split') started.push(startEngineWorker());
    const workers = started.map(({ worker }) => worker);
    const died = Promise.race(started.map((one) => one.died));
    died.catch(() => {}); // callers that await the workers get the error
    try {
      return new Session(await Promise.race([load(config, workers, died, options, made), died, givenUp]));
    } catch (error) {
      for (const worker of workers) worker.terminate();
      throw error;
    }
  }

  /** Ends the workers, including their devices. Further calls do nothing. */
  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.task.close?.();
    for (const worker of this.#workers) worker.terminate();
    this.#tellClosed(new Error('The session is closed.'));
  }
}

/** Returns the settings that determine a session. Sessions with equal keys have the same engine, model and task. */
export const sessionKey = (config: TrainConfig): string =>
  JSON.stringify([
    engineSizes(config),
    config.model,
    config.task,
    config.reward,
    config.trainer.placement === 'split' && streamOptions(config),
  ]);

/** True if a session needs only the page's own files, so that it can be opened before Start. */
export function needsOnlyThePage(config: TrainConfig): boolean {
  const { model, task } = config;
  const judge = judgeCheckpoint(config);
  const ships = isShipped(model.path) && (judge === undefined || isShipped(judge));
  return ships && model.customChatTemplate === undefined && task.module === undefined && task.mcpServers === undefined;
}

async function load(
  config: TrainConfig,
  workers: Worker[],
  died: Promise<never>,
  { hub, onDownload }: SessionOptions,
  made: LoadedModel<TensorMap> | undefined,
): Promise<SessionParts> {
  const task = await openTask(config);
  const [worker, other] = workers;
  const fetched = (path: string, into = worker) => fetchModel(path, into, hub, onDownload);
  const judge = judgeCheckpoint(config);
  const judgeModel = judge === undefined ? undefined : await fetched(judge).then((files) => ofJudge(files, judge));
  const model = made ?? (await fetched(config.model.path)); // the model that is opened last is the policy
  const { customChatTemplate } = config.model;
  if (customChatTemplate !== undefined)
    model.tokenizerConfigJson = {
      ...model.tokenizerConfigJson,
      chat_template: await fetchTemplate(customChatTemplate),
    };
  const spec = { ...engineSizes(config), ...model, ...(judgeModel && { judgeModel }) };
  if (other && spec.weights === 'opened') await fetched(config.model.path, other); // the second worker reads what the first has downloaded
  const engine = other ? await createSplit(spec, [worker, other], config) : await createRemoteEngine(worker, spec);
  return { config, hub, workers, died, engine, model, task };
}

/** Creates an engine that trains in one worker and generates in another. */
async function createSplit(
  spec: RemoteEngineSpec,
  workers: [Worker, Worker],
  config: TrainConfig,
): Promise<RemoteEngine> {
  const { train, rollout } = splitSpecs(spec);
  const [trains, generates] = await Promise.all([
    createRemoteEngine(workers[0], train),
    createRemoteEngine(workers[1], rollout),
  ]);
  return splitEngine(trains, generates, streamOptions(config));
}

/**
 * Returns a judge model in the form that the engine's spec needs. Its weights stay in the worker, stored under the judge's address next to
 * the policy's weights.
 */
const ofJudge = ({ weights, ...files }: Awaited<ReturnType<typeof fetchModel>>, address: string) => ({
  ...files,
  weights: weights === 'opened' ? { opened: address } : weights,
});

/**
 * Trains the start model of a config whose `model.path` is a supervised config. Returns undefined if the config names an existing model.
 */
async function warmStartOf(
  { model }: TrainConfig,
  givenUp: Promise<never>,
): Promise<LoadedModel<TensorMap> | undefined> {
  const name = warmStartName(model.path);
  if (name === undefined) return undefined;
  const { makeWarmStart } = await import('./warmStart.ts');
  try {
    return await makeWarmStart(name, (progress) => void (warmStart.value = progress), givenUp);
  } finally {
    warmStart.value = undefined;
  }
}
