/** Fetches checkpoints by the paths that the command line uses. */

import { loadCheckpoint, withTokenizer } from '../../src/model/checkpoint/checkpoint.ts';
import type { ModelCheckpoint } from '../../src/model/checkpoint/checkpoint.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { InputError } from '../../src/errors.ts';
import type { DownloadProgress } from '../../src/model/checkpoint/download.ts';
import { isKeptGguf, isRemote } from '../../src/model/checkpoint/address.ts';
import { openRemoteModel } from '../../src/workers/remoteEngine.ts';
import { CHECKPOINTS, fetchBytes, isShipped } from './configs.ts';

/** A model with its tokenizer. */
export interface LoadedModel<Weights> extends Omit<ModelCheckpoint, 'weights'> {
  /** 'opened' = the weights are in the engine worker, which opened the model. */
  weights: Weights;
  tokenizerJson: Record<string, unknown>;
  tokenizerConfigJson: Record<string, unknown>;
}

/**
 * Returns the checkpoint of a folder that is shipped with the page, such as checkpoints/gsm8k-tool. Fetches all its files at the same time.
 * Throws InputError.
 */
export async function fetchShipped(path: string): Promise<LoadedModel<TensorMap>> {
  const folder = `../../${path}/`;
  const files = new Map<string, Promise<Uint8Array<ArrayBuffer>>>();
  for (const [file, url] of Object.entries(CHECKPOINTS)) {
    if (!file.startsWith(folder)) continue;
    const name = file.slice(folder.length);
    const bytes = fetchBytes(url, `${path}/${name}`, true);
    bytes.catch(() => {}); // loadCheckpoint reports the first error
    files.set(name, bytes);
  }
  return withTokenizer(path, await loadCheckpoint(async (name) => files.get(name)));
}

/**
 * Like `fetchShipped`, but also accepts org/name (on `endpoint`, or huggingface.co) or a URL. The worker downloads such a model once; see
 * `openRemoteModel`. Also accepts the name of a GGUF file that the browser keeps. Throws InputError.
 */
export async function fetchModel(
  path: string,
  worker: Worker,
  endpoint: string | undefined,
  onProgress: (progress: DownloadProgress) => void,
): Promise<LoadedModel<TensorMap | 'opened'>> {
  if (isShipped(path) || !(isRemote(path) || isKeptGguf(path))) return fetchShipped(path);
  const model = await openRemoteModel(worker, path, { onProgress, ...(endpoint !== undefined && { endpoint }) });
  return withTokenizer(path, { ...model, weights: 'opened' as const });
}

/** Returns a chat template, which a page can read only at a URL. Throws InputError. */
export async function fetchTemplate(url: string): Promise<string> {
  if (/^https?:/.test(url)) return new TextDecoder().decode(await fetchBytes(url, url));
  throw new InputError(
    `model.customChatTemplate is "${url}", but a page reads no files. Give the URL of a template (https://...), or use the command line.`,
  );
}

/**
 * Returns a file next to the page, or at an address on its server. Detects a server that sends an HTML page because it lacks the file.
 * Throws InputError.
 */
export async function fetchText(path: string): Promise<string> {
  const text = new TextDecoder().decode(await fetchBytes(new URL(path, location.href).href, path));
  if (!/^\s*<!doctype html/i.test(text)) return text;
  throw new InputError(
    `${path} is missing in the folder of the page: the server answered with HTML. Copy the file there.`,
  );
}
