/** Fetches recipes and checkpoints, by the paths the command line uses. */

import { loadCheckpoint, withTokenizer } from '../src/model/checkpoint/checkpoint.ts';
import type { ModelCheckpoint } from '../src/model/checkpoint/checkpoint.ts';
import type { TensorMap } from '../src/model/engine.ts';
import { InputError } from '../src/errors.ts';
import type { DownloadProgress } from '../src/model/checkpoint/download.ts';
import { isRemote } from '../src/model/checkpoint/hub.ts';
import { openRemoteModel } from '../src/workers/remoteEngine.ts';

type Urls = Record<string, string>;

/** Path in the repository to URL; Vite fills these in, and copies the files into a build. */
const CONFIGS = import.meta.glob<string>('../configs/*.yaml', {
  query: '?url',
  import: 'default',
  eager: true,
}) as Urls;
const CHECKPOINTS = import.meta.glob<string>('../checkpoints/*/*', {
  query: '?url',
  import: 'default',
  eager: true,
}) as Urls;

/** A model with its tokenizer. */
interface LoadedModel<Weights> extends Omit<ModelCheckpoint, 'weights'> {
  /** 'opened' = in the worker that opened it. */
  weights: Weights;
  tokenizerJson: Record<string, unknown>;
  tokenizerConfigJson: Record<string, unknown>;
}

/** Text of configs/<name>.yaml. Throws InputError. */
export async function fetchConfig(name: string): Promise<string> {
  const url = CONFIGS[`../configs/${name}.yaml`];
  if (!url) throw new InputError(`There is no configs/${name}.yaml; there are ${Object.keys(CONFIGS).join(', ')}.`);
  return new TextDecoder().decode(await fetchBytes(url, name));
}

/** The checkpoint of a folder that comes with the page, such as checkpoints/gsm8k-tool. Throws InputError. */
export async function fetchShipped(path: string): Promise<LoadedModel<TensorMap>> {
  const checkpoint = await loadCheckpoint(async (name) => {
    const url = CHECKPOINTS[`../${path}/${name}`];
    return url ? fetchBytes(url, `${path}/${name}`) : undefined;
  });
  return withTokenizer(path, checkpoint);
}

/**
 * As `fetchShipped`, or of org/name (looked up at `?hub=`, or huggingface.co), or of a URL: these are downloaded by the
 * worker, once, see `openRemoteModel`. Throws InputError.
 */
export async function fetchModel(
  path: string,
  worker: Worker,
  onProgress: (progress: DownloadProgress) => void,
): Promise<LoadedModel<TensorMap | 'opened'>> {
  const ships = Object.keys(CHECKPOINTS).some((file) => file.startsWith(`../${path}/`));
  if (ships || !isRemote(path)) return fetchShipped(path);
  const endpoint = new URLSearchParams(location.search).get('hub');
  const model = await openRemoteModel(worker, path, { onProgress, ...(endpoint !== null && { endpoint }) });
  return withTokenizer(path, { ...model, weights: 'opened' as const });
}

/** A chat template, which a page can only read at a URL. Throws InputError. */
export async function fetchTemplate(url: string): Promise<string> {
  if (/^https?:/.test(url)) return new TextDecoder().decode(await fetchBytes(url, url));
  throw new InputError(
    `model.customChatTemplate is "${url}"; a page has no files, so give the URL of one (https://...), or use the command line.`,
  );
}

async function fetchBytes(url: string, name: string): Promise<Uint8Array> {
  const response = await fetch(url);
  if (!response.ok) throw new InputError(`${name} could not be loaded: the server answered ${response.status}.`);
  return new Uint8Array(await response.arrayBuffer());
}
