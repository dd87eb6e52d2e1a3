/** What the page fetches: recipes and checkpoints, by the paths the command line uses. */

import { collectWeights, loadCheckpoint } from '../src/model/checkpoint.ts';
import type { Checkpoint } from '../src/model/checkpoint.ts';
import { InputError } from '../src/model/errors.ts';
import { fetchModel as download, isRemote } from '../src/model/hub.ts';
import { openCheckpoint } from '../src/model/openCheckpoint.ts';
import { opfsStore } from '../src/model/opfsStore.ts';

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
export interface LoadedModel extends Checkpoint {
  tokenizerJson: Record<string, unknown>;
  tokenizerConfigJson: Record<string, unknown>;
}

/** Text of configs/<name>.yaml. Throws InputError. */
export async function fetchConfig(name: string): Promise<string> {
  const url = CONFIGS[`../configs/${name}.yaml`];
  if (!url) throw new InputError(`There is no configs/${name}.yaml; there are ${Object.keys(CONFIGS).join(', ')}.`);
  return new TextDecoder().decode(await fetchBytes(url, name));
}

/** The checkpoint of a folder such as checkpoints/gsm8k-tool, of org/name, or of a URL. Throws InputError. */
export async function fetchModel(path: string): Promise<LoadedModel> {
  const ships = Object.keys(CHECKPOINTS).some((file) => file.startsWith(`../${path}/`));
  const checkpoint = !ships && isRemote(path) ? await fetchRemote(path) : await fetchShipped(path);
  const { tokenizerJson, tokenizerConfigJson } = checkpoint;
  if (!tokenizerJson || !tokenizerConfigJson)
    throw new InputError(`${path} has no tokenizer.json and tokenizer_config.json; copy them beside the weights.`);
  return { ...checkpoint, tokenizerJson, tokenizerConfigJson };
}

const fetchShipped = (path: string): Promise<Checkpoint> =>
  loadCheckpoint(async (name) => {
    const url = CHECKPOINTS[`../${path}/${name}`];
    return url ? fetchBytes(url, `${path}/${name}`) : undefined;
  });

/** Downloaded once into the browser's own file system; a transfer that broke goes on where it stopped. */
async function fetchRemote(path: string): Promise<Checkpoint> {
  const { weights, ...rest } = await openCheckpoint(await download(path, await opfsStore('models')));
  return { ...rest, weights: await collectWeights(weights) };
}

async function fetchBytes(url: string, name: string): Promise<Uint8Array> {
  const response = await fetch(url);
  if (!response.ok) throw new InputError(`${name} could not be loaded: the server answered ${response.status}.`);
  return new Uint8Array(await response.arrayBuffer());
}
