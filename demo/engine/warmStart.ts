/**
 * Handles recipes whose `model.path` is the config of a supervised run: trains that model first, once, and keeps it in the browser's files.
 */

import {
  exampleStream,
  freshModel,
  generatedTokenizer,
  parseSftConfig,
  type SftConfig,
  trainSupervised,
} from '../../src/extensions/sft/index.ts';
import { loadCheckpoint, withTokenizer } from '../../src/model/checkpoint/checkpoint.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { optimizerOf } from '../../src/model/optimizer/spec.ts';
import { modelFiles, writeCheckpoint } from '../../src/runs/checkpointFolder.ts';
import type { FileSystem } from '../../src/runs/fileSystem.ts';
import { MANIFEST } from '../../src/runs/manifest.ts';
import { opfsFileSystem } from '../storage/opfs.ts';
import { openShippedTask } from '../../src/extensions/tasks/index.ts';
import { sha256Of } from '../../src/extensions/modules/index.ts';
import { createRemoteEngine } from '../../src/workers/remoteEngine.ts';
import { fetchConfig } from './configs.ts';
import { startEngineWorker } from './engineWorker.ts';
import type { LoadedModel } from './files.ts';
import type { WarmStartProgress } from './startModel.ts';

type Model = LoadedModel<TensorMap>;

const ROOT = 'warm-starts';

/** Returns the start model of a supervised config. Trains the model unless the browser has it already. Rejects if `givenUp` rejects. */
export async function makeWarmStart(
  name: string,
  onProgress: (progress: WarmStartProgress) => void,
  givenUp: Promise<never>,
): Promise<Model> {
  const yaml = await fetchConfig(name);
  const config = parseSftConfig(yaml, { source: `configs/${name}.yaml` });
  const folder = `${ROOT}/${name}-${(await sha256Of(new Map([[name, yaml]]))).slice(0, 16)}`;
  const files = await filesOfPage();
  const kept = files && (await read(files, folder).catch(() => undefined)); // a damaged model is trained again
  if (kept) return kept;
  const made = await make(config, onProgress, givenUp);
  await keep(files, folder, made).catch(() => {}); // without space it is trained again next time
  return made;
}

async function make(
  config: SftConfig,
  onProgress: (progress: WarmStartProgress) => void,
  givenUp: Promise<never>,
): Promise<Model> {
  const { worker, died } = startEngineWorker();
  try {
    return await Promise.race([imitate(config, worker, onProgress), died, givenUp]);
  } finally {
    worker.terminate();
  }
}

async function imitate(
  config: SftConfig,
  worker: Worker,
  onProgress: (progress: WarmStartProgress) => void,
): Promise<Model> {
  const { data, optim, trainer } = config;
  const task = await openShippedTask(config.task, { readText: refuse, loadReward: refuse });
  const files = await generatedTokenizer(config, task);
  const model = freshModel(config, { tokenizerJson: files.tokenizer, tokenizerConfigJson: files.config });
  const engine = await createRemoteEngine(worker, {
    engine: config.engine,
    maxTokenLen: data.maxTokenLenPerGpu,
    maxPositions: data.maxLength,
    ...(optim.optimizer !== 'AdamW' && { optimizer: optimizerOf(optim) }),
    chatTemplateKwargs: data.chatTemplateKwargs,
    ...model,
  });
  const total = trainer.totalTrainingSteps;
  await trainSupervised({
    config,
    engine: engine.model,
    example: exampleStream(config, engine.tokenizer, task),
    onStep: (metrics) => onProgress({ step: metrics['training/global_step'], total, loss: metrics['train/loss'] }),
  });
  return { ...model, weights: await engine.model.exportWeights() };
}

function refuse(): never {
  throw new Error('A warm start in the page cannot read files. Use the command line.');
}

/** Returns the browser's files; undefined if the browser stores no files, as in some private windows. */
async function filesOfPage(): Promise<FileSystem | undefined> {
  try {
    return opfsFileSystem(await navigator.storage.getDirectory());
  } catch {
    return undefined;
  }
}

async function read(files: FileSystem, folder: string): Promise<Model | undefined> {
  if (!(await files.exists(`${folder}/${MANIFEST}`))) return undefined;
  const checkpoint = await loadCheckpoint(async (name) =>
    (await files.exists(`${folder}/${name}`)) ? files.read(`${folder}/${name}`) : undefined,
  );
  return withTokenizer(folder, checkpoint);
}

async function keep(files: FileSystem | undefined, folder: string, model: Model): Promise<void> {
  if (files) await writeCheckpoint(files, folder, modelFiles(model));
}
