/**
 * Loads a checkpoint by its address: a repository of a Hugging Face hub (`org/name`, `org/name@revision`), a GGUF file of one
 * (`org/name:Q4_1`, `org/name/FILE.gguf`), or the URL of a folder of files or of a GGUF file. Files are downloaded into a store once and
 * read from there. A branch of a repository is read at its commit of now: `org/name@COMMIT` stays at one commit.
 */

import { GGUF_IN_REPOSITORY, isGguf, isUrl, REPOSITORY, withoutQuery } from './address.ts';
import { chunksOf, download, type DownloadOptions, type Expected } from './download.ts';
import { concat } from '../../concat.ts';
import { InputError, isInPage, whyUnreachable } from '../../errors.ts';
import { isLoopback } from './loopback.ts';
import { type FileStore, memoryStore, writeFile } from './store.ts';
import { openCheckpoint, shardsOf } from './open.ts';
import { MAX_HEADER_BYTES } from './safetensors.ts';
import { type CheckpointFiles, isOtherFile, MAX_TEXT_BYTES, OPTIONAL_FILES, readStoredJson } from './sourceFiles.ts';
import { type ModelConfig, parseModelConfig } from '../config.ts';
import { parameterCount } from '../params.ts';

export interface HubOptions extends DownloadOptions {
  /** Address of the hub with the repository `org/name`. Default: https://huggingface.co. */
  endpoint?: string | undefined;
  /** Called if a repository's branch has another commit than at its last download. */
  onOtherCommit?: ((before: string, now: string) => void) | undefined;
}

const WEIGHTS = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';
const SMALL_FILES = ['config.json', 'tokenizer.json', 'tokenizer_config.json', ...OPTIONAL_FILES, INDEX];

const DEFAULT_ENDPOINT = 'https://huggingface.co';
/**
 * Maximum bytes of a file without a listed size; larger than any config or tokenizer. Without a limit, a server that
 * sends no length could send forever.
 */
const MAX_SMALL_BYTES = MAX_TEXT_BYTES;
const MAX_LISTING_BYTES = 32 * 2 ** 20;
const LISTING_SECONDS = 60;
/** Maximum bytes of a GGUF file of unknown length, so that a server cannot send forever. */
const MAX_GGUF_BYTES = 2 ** 36;

/**
 * Downloads the files of a checkpoint that the store lacks. Returns the checkpoint's files for `openCheckpoint`. Throws
 * InputError if the address is wrong, the hub is unreachable, or a file is not what the hub lists.
 */
export async function fetchModel(model: string, store: FileStore, options: HubOptions = {}): Promise<CheckpointFiles> {
  const { origin, username, password } = addressOf(options.endpoint ?? DEFAULT_ENDPOINT, 'HF_ENDPOINT');
  if (username || password) throw new InputError('HF_ENDPOINT contains a user name or a password. Remove it.');
  const gguf = await ggufPlace(model, store, options);
  if (gguf) return fetchGguf(gguf, store, { ...options, token: tokenFor(gguf.url, origin, options.token) });
  const place = isUrl(model) ? urlPlace(model) : await repositoryPlace(model, store, options);
  const token = tokenFor(place.url, origin, options.token);
  const present = new Set<string>();
  const others = [...(place.files ?? [])].filter(([name, { size = 0 }]) => isOtherFile(name, size));
  const small = [...SMALL_FILES, ...others.map(([name]) => name)];
  let weightBytes = 0;
  const bring = async (file: string) => {
    if (place.files && !place.files.has(file)) return false;
    const expected = place.files?.get(file);
    const maxBytes = Math.min(expected?.size ?? Infinity, small.includes(file) ? MAX_SMALL_BYTES : weightBytes);
    const [from, to] = [`${place.url}/${file}`, `${place.folder}/${file}`];
    if (!(await download(store, from, to, expected, { ...options, token, maxBytes }))) return false;
    present.add(file);
    return true;
  };
  for (const file of small) if (file !== INDEX) await bring(file);
  if (!present.has('config.json')) throw noConfig(model, place);
  const files = within(store, place.folder, present);
  // Parsing the config refuses an unsupported model before its weights are downloaded. The limit is the size of the
  // largest possible weights.
  weightBytes = MAX_HEADER_BYTES + 8 * parameterCount(parseModelConfig(await readStoredJson(files, 'config.json')));
  if (!(await bring(WEIGHTS)) && (await bring(INDEX))) {
    for (const shard of shardsOf((await readStoredJson(files, INDEX))!)) await bring(shard);
  }
  return files;
}

/** Size of a hub model, and the bytes of its files. A file without a listed size counts as 0 bytes. */
export interface FoundModel {
  config: ModelConfig;
  bytes: number;
}

function noConfig(model: string, { url, files }: Pick<Place, 'url' | 'files'>): InputError {
  const first = [...(files?.keys() ?? [])].find((name) => GGUF_FILE.test(name));
  if (first === undefined) return new InputError(`${model} has no config.json at ${url}. Check its name.`);
  return new InputError(`${model} has no config.json, but GGUF files. Choose one of them: ${model}/${first}.`);
}

/** The hub's list of files is not trusted: a name must not point outside the store's folder. */
const GGUF_FILE = /^[\w-][\w.-]*\.gguf$/i;

/** A GGUF file on a server. */
interface GgufPlace {
  /** Name in errors. */
  name: string;
  url: string;
  /** Path in the store. */
  path: string;
  expected?: Expected;
}

/** Returns the place of the GGUF file that an address names; undefined if it names none. Throws InputError. */
async function ggufPlace(model: string, store: FileStore, options: HubOptions): Promise<GgufPlace | undefined> {
  if (isUrl(model)) {
    const { pathname } = addressOf(model, 'The model address');
    if (!isGguf(pathname)) return undefined;
    // A link to a file's page on the Hub (/blob/) means the file itself (/resolve/).
    const { url, folder } = urlPlace(
      withoutQuery(model).replace(/^(https:\/\/huggingface\.co\/[^/]+\/[^/]+)\/blob\//, '$1/resolve/'),
    );
    return { name: pathname.slice(pathname.lastIndexOf('/') + 1), url, path: folder };
  }
  const [, repository, file, type] = GGUF_IN_REPOSITORY.exec(model) ?? [];
  if (repository === undefined) return undefined;
  const { url, folder, files = new Map<string, Expected>() } = await repositoryPlace(repository, store, options);
  const all = [...files.keys()].filter((name) => GGUF_FILE.test(name));
  const ofType = new RegExp(`[-._]${type}\\.gguf$`, 'i'); // the separator keeps F16 from matching BF16
  const [name, another] = all.filter((name) => (file === undefined ? ofType.test(name) : name === file));
  if (name !== undefined && another === undefined)
    return { name, url: `${url}/${name}`, path: `${folder}/${name}`, expected: files.get(name)! };
  const found = all.length === 0 ? 'no GGUF file' : `the GGUF files ${all.join(', ')}`;
  throw new InputError(
    `"${file ?? type}" names ${another === undefined ? 'no file' : 'several files'} of ${repository}, which has ${found}. ` +
      `Write ${repository}/FILE.gguf.`,
  );
}

/**
 * Downloads a GGUF file. Checks the header before the download if the server can send parts of a file, because the file
 * can be large.
 */
async function fetchGguf({ name, url, path, expected }: GgufPlace, store: FileStore, options: DownloadOptions) {
  const stored: CheckpointFiles = {
    gguf: name,
    size: () => store.size(path),
    read: (_, begin, end) => store.read(path, begin, end),
  };
  const isThere = (await store.size(path)) !== undefined;
  const found = isThere ? undefined : await rangesOf(name, url, options.token);
  const ranges = typeof found === 'string' ? undefined : found;
  if (ranges) await openCheckpoint(ranges);
  const maxBytes = Math.min(expected?.size ?? Infinity, (await ranges?.size(name)) ?? MAX_GGUF_BYTES);
  if (await download(store, url, path, expected, { ...options, maxBytes })) return stored;
  throw new InputError(`${new URL(url).origin} has no ${name} at ${url}. Check the address.`);
}

/** Opens a file on a server to read parts of it. If that is impossible, returns the reason as the rest of a sentence about the URL. */
async function rangesOf(name: string, url: string, token: string | undefined): Promise<CheckpointFiles | string> {
  const ask = (begin: number, end: number) =>
    fetch(url, {
      headers: { range: `bytes=${begin}-${end - 1}`, ...(token && { authorization: `Bearer ${token}` }) },
      signal: AbortSignal.timeout(LISTING_SECONDS * 1000),
    });
  const first = await ask(0, 1).catch((cause: Error) => cause);
  if (first instanceof Error)
    return `${await whyUnreachable(url, first)}. Check the address, or download the file and choose it.`;
  const size = Number(/\/(\d+)$/.exec(first.headers.get('content-range') ?? '')?.[1]);
  await first.body?.cancel();
  if (!first.ok) return `was not sent: the server answered ${first.status}. Check the address.`;
  if (first.headers.get('content-type')?.includes('text/html'))
    return 'is a web page and not a GGUF file. Give the address of the file itself.';
  if (first.status !== 206 || !Number.isSafeInteger(size))
    return `can only be read as a whole: its server does not send parts of a file. Download the file, and choose it.`;
  return {
    gguf: name,
    size: async () => size,
    async read(_, begin, end) {
      const response = await ask(begin, end).catch((cause: Error) => cause);
      const answer = response instanceof Error ? 'did not answer' : `answered ${response.status}`;
      if (response instanceof Error || response.status !== 206)
        throw new InputError(`${url} ${answer} to a request for a part of the file. Try again later.`);
      return readAtMost(response, end - begin);
    },
  };
}

const SHARD = /^model-\d+-of-\d+\.safetensors$/;

/**
 * Looks up `org/name`, or the address of a GGUF file, without downloading weights. Throws InputError like `fetchModel`, and for an
 * invalid name.
 */
export async function lookUpModel(model: string, options: Pick<HubOptions, 'endpoint'> = {}): Promise<FoundModel> {
  const store = memoryStore();
  const gguf = await ggufPlace(model, store, options);
  if (gguf) return lookUpGguf(gguf);
  if (!REPOSITORY.test(model))
    throw new InputError(
      `"${model}" is not a name on a hub. Write it as org/name, or as org/name:Q4_1 for a GGUF file of that type.`,
    );
  const { url, files = new Map<string, Expected>() } = await repositoryPlace(model, store, options);
  const limits = { maxBytes: MAX_SMALL_BYTES };
  if (!(await download(store, `${url}/config.json`, 'config.json', files.get('config.json'), limits)))
    throw noConfig(model, { url, files });
  const config = parseModelConfig(await readStoredJson(store, 'config.json'));
  const weights = files.has(WEIGHTS) ? [WEIGHTS] : [...files.keys()].filter((file) => SHARD.test(file));
  if (weights.length === 0) throw new InputError(`${model} has no ${WEIGHTS}. Choose a model in that format.`);
  const bytes = [...SMALL_FILES, ...weights].reduce((sum, file) => sum + (files.get(file)?.size ?? 0), 0);
  return { config, bytes };
}

async function lookUpGguf({ name, url }: GgufPlace): Promise<FoundModel> {
  const ranges = await rangesOf(name, url, undefined);
  if (typeof ranges === 'string') throw new InputError(`${url} ${ranges}`);
  const { config } = await openCheckpoint(ranges);
  return { config, bytes: (await ranges.size(name))! };
}

/** Parses a URL. Throws InputError for an invalid one. */
function addressOf(text: string, what: string): URL {
  try {
    return new URL(text);
  } catch {
    // An address with "@" can contain a password, so errors do not show it.
    const shown = text.includes('@') ? 'a text' : JSON.stringify(text);
    throw new InputError(`${what} is ${shown}, which is not an address. Write it as https://host/path.`);
  }
}

/**
 * Returns the access token for an address; undefined unless the address is on the configured endpoint, over https or on
 * this machine. The check is needed because an untrusted adapter can name any address. Throws InputError, without the
 * token's text, if a header cannot contain it.
 */
function tokenFor(url: string, endpoint: string, given: string | undefined): string | undefined {
  const token = given?.trim();
  const { origin, protocol, hostname } = new URL(url);
  if (!token || origin !== endpoint || !(protocol === 'https:' || isLoopback(hostname))) return undefined;
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new InputError('HF_TOKEN contains white space or invalid characters. Set it to the token alone.');
  }
  return token;
}

/** Address of a model's files, and the store's folder in which they are saved. */
interface Place {
  url: string;
  folder: string;
  /** Listed files of the model. Undefined if the server has no list, so that each file must be requested by name. */
  files?: Map<string, Expected>;
}

function urlPlace(model: string): Place {
  const { href, host, pathname, search, username, password } = addressOf(model, 'The model address');
  if (username || password) {
    throw new InputError(`The model address at ${host} contains a user name or a password. Remove it.`);
  }
  if (search) throw new InputError(`The model address at ${host} has a query. Give the URL of a folder of files.`);
  const folder = `${host}${pathname}`.replace(/\/+$/, '').replace(/[^\w./-]/g, '_');
  return { url: href.replace(/\/+$/, ''), folder: folder.replace(/\.\.+/g, '_') };
}

async function repositoryPlace(model: string, store: FileStore, options: HubOptions): Promise<Place> {
  const [, id, revision = 'main'] = REPOSITORY.exec(model) ?? [];
  const endpoint = (options.endpoint ?? DEFAULT_ENDPOINT).replace(/\/+$/, '');
  const { host, origin } = new URL(endpoint);
  const base = `${host.replace(':', '_')}/${id}`;
  const note = `${base}/revision-${revision.replaceAll('/', '_')}.json`;
  const listing = await readListing(
    `${endpoint}/api/models/${id}/revision/${revision}?blobs=true`,
    model,
    store,
    note,
    tokenFor(endpoint, origin, options.token),
  );
  const earlier = await readStoredJson(store, note).catch(() => undefined);
  const known = isListing(earlier) ? earlier.sha : undefined;
  if (known !== undefined && known !== listing.sha) options.onOtherCommit?.(known, listing.sha);
  if (known !== listing.sha) await writeFile(store, note, JSON.stringify(listing));
  const files = new Map(
    listing.siblings.map(({ rfilename, size, blobId, lfs }) => [
      rfilename,
      lfs ? { size: lfs.size ?? size, sha256: lfs.sha256 } : { size, gitSha1: blobId },
    ]),
  );
  return { url: `${endpoint}/${id}/resolve/${listing.sha}`, folder: `${base}/${listing.sha}`, files };
}

/** Fields read from the hub's answer to `/api/models/<id>/revision/<revision>?blobs=true`. */
interface Listing {
  sha: string;
  siblings: { rfilename: string; size?: number; blobId?: string; lfs?: { sha256?: string; size?: number } }[];
}

/** Reads the list of a repository's files from the hub, or returns the last stored list if the hub is unreachable. */
async function readListing(url: string, model: string, store: FileStore, note: string, token?: string) {
  const signal = AbortSignal.timeout(LISTING_SECONDS * 1000);
  const ask = () => fetch(url, { headers: token ? { authorization: `Bearer ${token}` } : {}, signal });
  // The first failure is retried, because a kept-alive connection can have been closed by the server.
  const response = await ask()
    .catch(ask)
    .catch((cause: unknown) => cause as Error);
  if (response instanceof Error) {
    const earlier = await readStoredJson(store, note).catch(() => undefined);
    if (isListing(earlier)) return earlier;
    const why = `${new URL(url).origin} ${await whyUnreachable(url, response)}`;
    throw new InputError(
      isInPage()
        ? `${model}: ${why}. Check the network, or name another hub by "hub=" in the address of this page.`
        : `${model} is not a folder here, and ${why}. Check the path, or the network (HF_ENDPOINT sets another hub).`,
      { cause: response },
    );
  }
  if (!response.ok) throw new InputError(`${model}: ${refusal(response.status, new URL(url).origin)}`);
  const listing = await readJson(response).catch(() => undefined);
  if (!isListing(listing))
    throw new InputError(`${model}: ${url} returned no list of files. Give the address of a Hugging Face hub.`);
  return listing;
}

const GATED = 'Check its name. A page sends no token: train a gated model on the command line.';

function refusal(status: number, hub: string): string {
  if (status === 404) return `${hub} has no such model or revision. Check its name.`;
  if (status === 401 || status === 403)
    return `${hub} does not show this model (${status}). ${isInPage() ? GATED : 'Check its name, or set HF_TOKEN if it is gated.'}`;
  return `${hub} answered ${status}. Try again later.`;
}

/** Parses a response's body as JSON. Throws if it is not JSON, or is longer than MAX_LISTING_BYTES. */
const readJson = async (response: Response): Promise<unknown> =>
  JSON.parse(new TextDecoder().decode(await readAtMost(response, MAX_LISTING_BYTES)));

/** Reads a response's body. Throws InputError if the body is longer than `limit` bytes. */
async function readAtMost(response: Response, limit: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunksOf(response)) {
    bytes += chunk.length;
    if (bytes > limit)
      throw new InputError(`${response.url} sends more than the ${limit} bytes requested. Try again later.`);
    chunks.push(chunk);
  }
  return concat(Uint8Array, chunks);
}

function isListing(value: unknown): value is Listing {
  const { sha, siblings } = (value ?? {}) as Partial<Listing>;
  return typeof sha === 'string' && /^[\w-]+$/.test(sha) && Array.isArray(siblings) && siblings.every(isSibling);
}

function isSibling(value: unknown): boolean {
  const { rfilename, size, blobId, lfs } = (value ?? {}) as Partial<Listing['siblings'][number]>;
  const isSize = (n: unknown) => n === undefined || n === null || (Number.isSafeInteger(n) && (n as number) >= 0);
  const isText = (t: unknown) => t === undefined || t === null || typeof t === 'string';
  return typeof rfilename === 'string' && isSize(size) && isText(blobId) && isSize(lfs?.size) && isText(lfs?.sha256);
}

/** The complete files in a folder of the store. */
function within(store: FileStore, folder: string, present: ReadonlySet<string>): CheckpointFiles {
  return {
    size: async (file) => (present.has(file) ? store.size(`${folder}/${file}`) : undefined),
    read: (file, begin, end) => store.read(`${folder}/${file}`, begin, end),
    names: async () => [...present],
  };
}
