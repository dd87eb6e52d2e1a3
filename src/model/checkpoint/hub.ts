/**
 * A checkpoint by its address: a repository of a Hugging Face hub (`org/name`, `org/name@revision`), or the URL of a folder
 * of files. Files are downloaded into a store once and read from there; a repository is pinned to the commit it was at.
 */

import { download, type DownloadOptions, type Expected } from './download.ts';
import { InputError } from '../../errors.ts';
import { type FileStore, writeFile } from './store.ts';
import { type CheckpointFiles, readStoredJson, shardsOf } from './open.ts';

export interface HubOptions extends DownloadOptions {
  /** Where `org/name` is looked up. Default https://huggingface.co. */
  endpoint?: string | undefined;
}

const WEIGHTS = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';
const SMALL_FILES = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'];

/** True if a model setting names something to download, and no folder. */
export const isRemote = (model: string): boolean => /^https?:\/\//.test(model) || REPOSITORY.test(model);

const REPOSITORY = /^([\w-][\w.-]*\/[\w-][\w.-]*)(?:@([\w./-]+))?$/;

/**
 * Downloads what of a checkpoint is not in the store yet. Returns its files for `openCheckpoint`. Throws an InputError
 * where the address is wrong, the hub is out of reach, or a file is not what the hub promises.
 */
export async function fetchModel(model: string, store: FileStore, options: HubOptions = {}): Promise<CheckpointFiles> {
  const place = /^https?:\/\//.test(model) ? urlPlace(model) : await repositoryPlace(model, store, options);
  const present = new Set<string>();
  const bring = async (file: string) => {
    if (place.files && !place.files.has(file)) return false;
    const expected = place.files?.get(file);
    if (!(await download(store, `${place.url}/${file}`, `${place.folder}/${file}`, expected, options))) return false;
    present.add(file);
    return true;
  };
  for (const file of SMALL_FILES) await bring(file);
  if (!present.has('config.json')) throw new InputError(`${model} has no config.json at ${place.url}; check its name.`);
  const files = within(store, place.folder, present);
  if (!(await bring(WEIGHTS)) && (await bring(INDEX))) {
    for (const shard of shardsOf((await readStoredJson(files, INDEX))!)) await bring(shard);
  }
  return files;
}

/** A place files come from, and the folder of the store they go to. */
interface Place {
  url: string;
  folder: string;
  /** Files of the model; undefined where the server lists none, and each file must be asked for. */
  files?: Map<string, Expected>;
}

function urlPlace(model: string): Place {
  const { href, host, pathname, search } = new URL(model);
  if (search) throw new InputError(`The model address ${model} has a query; give the URL of a folder of files.`);
  const folder = `${host}${pathname}`.replace(/\/+$/, '').replace(/[^\w./-]/g, '_');
  return { url: href.replace(/\/+$/, ''), folder: folder.replace(/\.\.+/g, '_') };
}

async function repositoryPlace(model: string, store: FileStore, options: HubOptions): Promise<Place> {
  const [, id, revision = 'main'] = REPOSITORY.exec(model) ?? [];
  const endpoint = (options.endpoint ?? 'https://huggingface.co').replace(/\/+$/, '');
  const base = `${new URL(endpoint).host.replace(':', '_')}/${id}`;
  const note = `${base}/revision-${revision.replaceAll('/', '_')}.json`;
  const listing = await readListing(
    `${endpoint}/api/models/${id}/revision/${revision}?blobs=true`,
    model,
    store,
    note,
    options,
  );
  await writeFile(store, note, JSON.stringify(listing));
  const files = new Map(
    listing.siblings.map(({ rfilename, size, blobId, lfs }) => [
      rfilename,
      lfs ? { size: lfs.size ?? size, sha256: lfs.sha256 } : { size, gitSha1: blobId },
    ]),
  );
  return { url: `${endpoint}/${id}/resolve/${listing.sha}`, folder: `${base}/${listing.sha}`, files };
}

/** The hub's answer to `/api/models/<id>/revision/<revision>?blobs=true`, as far as it is read. */
interface Listing {
  sha: string;
  siblings: { rfilename: string; size?: number; blobId?: string; lfs?: { sha256?: string; size?: number } }[];
}

/** From the hub, or as it was last time where the hub is out of reach. */
async function readListing(url: string, model: string, store: FileStore, note: string, { token }: HubOptions) {
  const ask = () => fetch(url, { headers: token ? { authorization: `Bearer ${token}` } : {} });
  // A second time, since a connection that was kept open may have been closed meanwhile.
  const response = await ask()
    .catch(ask)
    .catch((cause: unknown) => cause as Error);
  if (response instanceof Error) {
    const earlier = await readStoredJson(store, note).catch(() => undefined);
    if (isListing(earlier)) return earlier;
    throw new InputError(
      `${model} is not a folder here, and ${new URL(url).origin} is out of reach; check the path, or the network (HF_ENDPOINT ` +
        `sets another hub).`,
      { cause: response },
    );
  }
  if (!response.ok) throw new InputError(`${model}: ${refusal(response.status, new URL(url).origin)}`);
  const listing: unknown = await response.json();
  if (!isListing(listing)) throw new InputError(`${model}: ${url} gave no list of files; is this a Hugging Face hub?`);
  return listing;
}

function refusal(status: number, hub: string): string {
  if (status === 404) return `${hub} has no such model or revision; check its name.`;
  if (status === 401 || status === 403)
    return `${hub} does not show this model (${status}); check its name, or set HF_TOKEN if it is gated.`;
  return `${hub} answered ${status}; try again later.`;
}

function isListing(value: unknown): value is Listing {
  const { sha, siblings } = (value ?? {}) as Partial<Listing>;
  return typeof sha === 'string' && /^[\w-]+$/.test(sha) && Array.isArray(siblings);
}

/** The files of a folder of the store that are there as a whole. */
function within(store: FileStore, folder: string, present: ReadonlySet<string>): CheckpointFiles {
  return {
    size: async (file) => (present.has(file) ? store.size(`${folder}/${file}`) : undefined),
    read: (file, begin, end) => store.read(`${folder}/${file}`, begin, end),
  };
}
