/** What the page fetches: recipes and checkpoints, by the paths the command line uses. */

import { loadCheckpoint } from '../src/model/checkpoint.ts';
import type { Checkpoint } from '../src/model/checkpoint.ts';
import { InputError } from '../src/model/errors.ts';

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

/** The checkpoint of a folder such as checkpoints/gsm8k-tool. Throws InputError. */
export async function fetchModel(path: string): Promise<LoadedModel> {
  const checkpoint = await loadCheckpoint(async (name) => {
    const url = CHECKPOINTS[`../${path}/${name}`];
    return url ? fetchBytes(url, `${path}/${name}`) : undefined;
  });
  const { tokenizerJson, tokenizerConfigJson } = checkpoint;
  if (!tokenizerJson || !tokenizerConfigJson)
    throw new InputError(`${path} has no tokenizer.json and tokenizer_config.json; copy them beside the weights.`);
  return { ...checkpoint, tokenizerJson, tokenizerConfigJson };
}

async function fetchBytes(url: string, name: string): Promise<Uint8Array> {
  const response = await fetch(url);
  if (!response.ok) throw new InputError(`${name} could not be loaded: the server answered ${response.status}.`);
  return new Uint8Array(await response.arrayBuffer());
}
