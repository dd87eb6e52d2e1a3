/** Opens models, adapters and checkpoints by the paths, repository names and URLs that a user gives. */

import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { ModelCheckpoint } from '../../model/checkpoint/checkpoint.ts';
import { type Adapter, loadAdapter, parseAdapterConfig } from '../../model/lora/adapter.ts';
import type { ModelConfig } from '../../model/config.ts';
import { InputError } from '../../errors.ts';
import type { Weights } from '../../model/weights/load.ts';
import type { DownloadProgress } from '../../model/checkpoint/download.ts';
import { isGguf, isGgufModel, isRemote } from '../../model/checkpoint/address.ts';
import { fetchModel } from '../../model/checkpoint/hub.ts';
import { openCheckpoint, type OpenCheckpoint, type WeightSource } from '../../model/checkpoint/open.ts';
import type { SafetensorsDtype } from '../../model/checkpoint/safetensors.ts';
import { type CheckpointFiles, readChatTemplate } from '../../model/checkpoint/sourceFiles.ts';
import { currentIo } from '../process/io.ts';
import { modelOf, runOf } from './namedRun.ts';
import { say, sayPassing } from './progress.ts';
import { diskStore, modelCache } from '../diskStore.ts';
import {
  ADAPTER_CONFIG,
  checkCheckpoint,
  checkpointSteps,
  modelFiles,
  newestCheckpoint,
  writeCheckpoint,
} from '../../runs/checkpointFolder.ts';
import { disk, folderFiles, ggufFile, readBytes, readJsonFile, shippedPath } from '../files.ts';

/** A model and its tokenizer. */
export interface LoadedModel extends Omit<ModelCheckpoint, 'weights'> {
  weights: Weights;
  tokenizerJson: Record<string, unknown>;
  tokenizerConfigJson: Record<string, unknown>;
}

/**
 * Opens a model with its tokenizer: a checkpoint folder, the newest checkpoint of a run folder, a GGUF file, a Hub name `org/name` or a
 * URL. Throws InputError that names the given path.
 */
export async function loadModelFiles(path: string): Promise<LoadedModel> {
  const { folder, model } = await openModel(path);
  return withTokenizerFiles(folder, model);
}

function withTokenizerFiles(folder: string, model: OpenCheckpoint): LoadedModel {
  const { tokenizerJson, tokenizerConfigJson } = model;
  if (!tokenizerJson || !tokenizerConfigJson) {
    if (isGgufModel(folder))
      throw new InputError(`${folder} has no tokenizer. Choose a file that contains a complete model.`);
    throw new InputError(
      `${folder}: The checkpoint has no tokenizer.json and tokenizer_config.json. Copy them into its folder.`,
    );
  }
  return { ...model, tokenizerJson, tokenizerConfigJson };
}

/** Like `loadModelFiles`, but a model without tokenizer is allowed. Weights are read on demand. */
export async function openModel(path: string): Promise<{ folder: string; model: OpenCheckpoint }> {
  const { folder, files } = await filesOf(path);
  try {
    const model = await openCheckpoint(files);
    return { folder, model: { ...model, weights: namingFolder(model.weights, folder) } };
  } catch (error) {
    throw inFolder(error, folder);
  }
}

/**
 * Returns the files of a checkpoint folder or a GGUF file, or downloads those of a Hub name or URL into the cache. A path whose parent
 * folder exists is never treated as a Hub name, so a mistyped folder is an error.
 */
async function filesOf(given: string): Promise<{ folder: string; files: CheckpointFiles }> {
  const path = shippedPath(modelOf(given));
  const isHere = existsSync(path) || (!path.startsWith('http') && existsSync(dirname(path)));
  if (!isHere && isRemote(path)) {
    const options = {
      endpoint: currentIo().env['HF_ENDPOINT'],
      token: currentIo().env['HF_TOKEN'],
      onProgress: showProgress(),
      onOtherCommit: (before: string, now: string) =>
        say(
          `${path}: the hub has commit ${now} now; it had ${before} before. To use that one, give its name with @${before}.`,
        ),
    };
    return { folder: path, files: await fetchModel(path, diskStore(modelCache()), options) };
  }
  if (isGguf(path)) return { folder: path, files: ggufFile(path) };
  const folder = await checkpointFolder(path);
  return { folder, files: folderFiles(folder) };
}

/** Downloads above this size leave a permanent line of progress. */
const LARGE_BYTES = 1 << 20;

/** Returns a callback that prints the progress of downloads: one line per file, updated every half second. */
function showProgress(): (progress: DownloadProgress) => void {
  let last = 0;
  return ({ file, received, total }) => {
    const now = performance.now();
    if (received !== total && now - last < 500) return;
    last = now;
    const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(1);
    const line = `${file}: ${mib(received)}${total === undefined ? '' : ` of ${mib(total)}`} MiB`;
    if (received === total && total > LARGE_BYTES) say(line);
    else sayPassing(line);
  };
}

/** Adds the checkpoint folder to the message of an error. Code that reads single files does not know the folder. */
function inFolder(error: unknown, folder: string): unknown {
  if (isGgufModel(folder)) return error; // an error about a GGUF file already names it
  const isBadFile = error instanceof RangeError || error instanceof InputError;
  return isBadFile ? new InputError(`${folder}: ${error.message}`) : error;
}

function namingFolder(weights: WeightSource, folder: string): WeightSource {
  return {
    async *pieces() {
      try {
        yield* weights.pieces();
      } catch (error) {
        throw inFolder(error, folder);
      }
    },
  };
}

const DTYPES = { float32: 'F32', float16: 'F16', bfloat16: 'BF16' } as const;

/** The `--dtype` flag of commands that save weights. */
export const SAVE_DTYPE_FLAG = { value: 'NAME', help: 'weights as float32 (default), bfloat16 or float16' };

/** Returns the dtype in which weights are saved, from the `--dtype` flag. Throws InputError. */
export function readDtype(flag: string | boolean | undefined): SafetensorsDtype {
  if (flag === undefined) return 'F32';
  if (typeof flag === 'string' && Object.hasOwn(DTYPES, flag)) return DTYPES[flag as keyof typeof DTYPES];
  throw new InputError(`--dtype is "${flag}"; allowed: ${Object.keys(DTYPES).join(', ')}.`);
}

/** Writes all files of a model, or none. */
export const saveModel = (folder: string, model: ModelCheckpoint, dtype?: SafetensorsDtype): Promise<void> =>
  writeCheckpoint(disk, folder, modelFiles(model, undefined, dtype));

/** Opens a model and, if there is one, its LoRA adapter. See `findAdapter`. */
export async function loadWithAdapter(path: string, adapterPath?: string): Promise<AdaptedModel> {
  const { folder, model, ...rest } = await openWithAdapter(path, adapterPath);
  return { ...withTokenizerFiles(folder, model), ...rest };
}

/**
 * Like `loadWithAdapter`, but a model without tokenizer is allowed. The chat template in the adapter's folder replaces the base's, because
 * the adapter was trained with it. Token ids and special tokens are always those of the base, whose embedding has their rows.
 */
export async function openWithAdapter(path: string, adapterPath?: string): Promise<OpenedWithAdapter> {
  const { base: named, folder: given } = await findAdapter(path, adapterPath);
  const { folder, model } = await openModel(named);
  const base = runOf(named) ? folder : named;
  if (given === undefined) return { base, folder, model };
  const { adapter, chatTemplate } = await readAdapter(given, model.config);
  const { tokenizerConfigJson: json } = model;
  const isReplaced = json !== undefined && chatTemplate !== undefined;
  const tokenizerConfigJson = { ...json, chat_template: chatTemplate };
  return { base, folder, model: { ...model, ...(isReplaced && { tokenizerConfigJson }) }, adapter };
}

/**
 * A base model by its path and its resolved folder, and the LoRA adapter on top of it, if any. If the path names a run, `base` is the
 * checkpoint, because the newest checkpoint of a run changes.
 */
interface OpenedWithAdapter {
  base: string;
  folder: string;
  model: OpenCheckpoint;
  adapter?: Adapter;
}

/**
 * Finds a base model and its LoRA adapter. With `adapterPath`, `path` is the base model. Otherwise `path` is a model, or an adapter (or the
 * folder of the run that trained it) whose `base_model_name_or_path` is the base.
 */
export async function findAdapter(path: string, adapterPath?: string): Promise<{ base: string; folder?: string }> {
  if (adapterPath !== undefined) return { base: path, folder: adapterPath };
  const folder = await adapterFolder(path);
  if (folder === undefined) return { base: path };
  const { baseModel } = parseAdapterConfig(await readJsonFile(join(folder, ADAPTER_CONFIG)));
  if (baseModel !== undefined) return { base: baseModel, folder };
  throw new InputError(
    `${folder} is an adapter that does not name its base. Give the base as the model and this folder as the adapter.`,
  );
}

/** A base model, the path of the base, and the LoRA adapter on top of it, if any. */
export interface AdaptedModel extends LoadedModel {
  base: string;
  adapter?: Adapter;
}

/** Reads the LoRA adapter in a folder, or in the newest checkpoint of a run, and the chat template that was saved with it, if any. */
async function readAdapter(path: string, config: ModelConfig) {
  const folder = await adapterFolder(path);
  if (folder === undefined)
    throw new InputError(
      `${path} has no ${ADAPTER_CONFIG}, nor has its newest checkpoint. Give a folder that PEFT or a LoRA run wrote.`,
    );
  try {
    const adapter = await loadAdapter(sourceOf(folder), config);
    return { adapter, chatTemplate: await readChatTemplate(folderFiles(folder)) };
  } catch (error) {
    throw inFolder(error, folder);
  }
}

/**
 * Returns the folder that contains a LoRA adapter: the given one, or the newest checkpoint of the given run. Undefined for a complete
 * model.
 */
async function adapterFolder(given: string): Promise<string | undefined> {
  const path = modelOf(given);
  if (isAdapter(path)) {
    await checkCheckpoint(disk, path, 'model');
    return path;
  }
  if (existsSync(join(path, 'config.json'))) return undefined;
  const steps = await checkpointSteps(disk, path);
  if (!steps.some((step) => isAdapter(join(path, 'checkpoints', `step-${step}`)))) return undefined;
  return newestCheckpoint(disk, path, 'model', say);
}

const isAdapter = (folder: string): boolean =>
  existsSync(join(folder, ADAPTER_CONFIG)) && !existsSync(join(folder, 'config.json'));

async function checkpointFolder(path: string): Promise<string> {
  if (existsSync(join(path, 'config.json'))) {
    await checkCheckpoint(disk, path, 'model');
    return path;
  }
  const newest = await newestCheckpoint(disk, path, 'model', say);
  if (newest) return newest;
  const what = existsSync(path) ? 'has no config.json and no checkpoints' : 'does not exist';
  throw new InputError(`The checkpoint folder ${path} ${what}. Give a folder in Hugging Face format or a run folder.`);
}

const sourceOf = (folder: string) => async (name: string) => {
  const path = join(folder, name);
  return existsSync(path) ? readBytes(path) : undefined;
};
