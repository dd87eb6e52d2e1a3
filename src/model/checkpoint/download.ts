/**
 * Downloads one file over HTTP into a store. A broken transfer is resumed with range requests, only under the same
 * ETag. The finished file is checked against its size and checksum. A file counts as complete only if the note next to
 * it, `<path>.json`, says so.
 */

import { concat } from '../../concat.ts';
import { InputError, isInPage, whyUnreachable } from '../../errors.ts';
import { type FileStore, writeFile } from './store.ts';
import { readStoredJson } from './sourceFiles.ts';
import { Sha256 } from './sha256.ts';

export interface DownloadOptions {
  /** Access token, sent to the first host only; fetch drops the token on a redirect to another host. */
  token?: string | undefined;
  onProgress?: ((progress: DownloadProgress) => void) | undefined;
  /** Number of failed transfers in a row, each with less than 64 KiB, after which the download fails. Default: 5. */
  attempts?: number | undefined;
  /** Wait before the second attempt, doubled for each further one. Default: 500 ms. */
  waitMs?: number | undefined;
  /**
   * Time limit for receiving 64 KiB. A connection that needs longer is aborted, and the attempt has failed. Default: 60
   * s.
   */
  silenceMs?: number | undefined;
  /** Maximum number of bytes to read. A longer file cannot be the expected one. */
  maxBytes?: number | undefined;
}

export interface DownloadProgress {
  file: string;
  received: number;
  /** ETag of the response. Undefined if the server does not send one. */
  total: number | undefined;
}

/** Expected size and hashes of a file, as far as they are known before the download. */
export interface Expected {
  size?: number | undefined;
  sha256?: string | undefined;
  /** Git's hash of the file's content, which the hub lists for small files. */
  gitSha1?: string | undefined;
}

interface Kept {
  etag: string | null;
  size: number;
  complete: boolean;
}

/**
 * A connection that receives less than this in `silenceMs` counts as silent. So a server cannot keep a download open by
 * sending single bytes.
 */
const LEAST_BYTES = 2 ** 16;

/** Number of bytes that are read at a time to compute a checksum. */
const HASH_BYTES = 8 << 20;

const noteOf = (path: string) => `${path}.json`;

/** True if the file is in the store, complete and verified. */
async function isComplete(store: FileStore, path: string): Promise<boolean> {
  const kept = await readNote(store, path);
  return kept?.complete === true && (await store.size(path)) === kept.size;
}

/**
 * Downloads `url` to `path`, unless it is already there. Returns false if the server has no such file. Throws
 * InputError if the download fails, or the file does not have the expected size and hash.
 */
export async function download(
  store: FileStore,
  url: string,
  path: string,
  expected: Expected | undefined,
  options: DownloadOptions = {},
): Promise<boolean> {
  if (expected && (await isComplete(store, path))) return true;
  for (let again = false; ; again = true) {
    const kept = await transfer(store, url, path, options);
    if (!kept) return false;
    const problem = await findProblem(store, path, kept, expected ?? {});
    if (!problem) {
      await writeNote(store, path, { ...kept, complete: true });
      return true;
    }
    // The downloaded file is wrong. Without a stored ETag the next attempt downloads it from byte 0 instead of resuming it.
    await writeNote(store, path, { ...kept, etag: null, complete: false });
    if (again) throw new InputError(`${url} ${problem}, twice. The file on the server or the connection is damaged.`);
  }
}

/**
 * Repeats requests until the file is complete. If the file is already complete, sends a conditional request, which
 * downloads it only if it has changed.
 */
async function transfer(store: FileStore, url: string, path: string, options: DownloadOptions) {
  const { attempts = 5, waitMs = 500 } = options;
  let failures = 0;
  for (;;) {
    const before = await readNote(store, path);
    try {
      return await request(store, url, path, before, options);
    } catch (error) {
      if (error instanceof InputError) throw error;
      const complete = before?.complete === true && (await store.size(path)) === before.size;
      if (complete) return before; // the server is unreachable, but the file is complete
      const progressed = ((await readNote(store, path))?.size ?? 0) >= (before?.size ?? 0) + LEAST_BYTES;
      failures = progressed ? 1 : failures + 1;
      if (failures >= attempts) {
        throw new InputError(
          `${url} could not be downloaded: ${reasonOf(error)} (${failures} attempts). Check the network, then start ` +
            `again: the download resumes.`,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, waitMs * 2 ** (failures - 1)));
    }
  }
}

/**
 * Sends one request. Returns undefined for status 404. Throws InputError if a further attempt cannot help, another
 * error if it can.
 */
async function request(
  store: FileStore,
  url: string,
  path: string,
  before: Kept | undefined,
  options: DownloadOptions,
): Promise<Kept | undefined> {
  const have = (await store.size(path)) ?? 0;
  const strong = before?.etag && !before.etag.startsWith('W/') ? before.etag : undefined;
  const whole = before?.complete === true && have === before.size;
  const resumed = !whole && strong !== undefined && have > 0;
  const silence = new Silence(options.silenceMs ?? 60_000);
  try {
    const response = await fetch(url, {
      headers: {
        // The request forbids compression, so that lengths and ranges refer to the file itself.
        'accept-encoding': 'identity',
        ...(options.token && { authorization: `Bearer ${options.token}` }),
        ...(whole && before.etag && { 'if-none-match': before.etag }),
        // The request has no If-Range, which a page can send to another host only if that host allows it. The ETag of
        // the response is compared instead.
        ...(resumed && { range: `bytes=${have}-` }),
      },
      signal: silence.signal,
    }).catch(async (error: unknown) => {
      if (!isInPage() || silence.signal.aborted) throw error;
      throw new Error(`the server ${await whyUnreachable(url, error)}`);
    });
    if (response.status === 304 && whole) return before;
    if (response.status === 404) return undefined;
    if (response.status === 416) return await restart(store, path);
    checkStatus(response, url);
    if (response.status === 206 && response.headers.get('etag') !== strong) {
      await response.body?.cancel();
      return await restart(store, path);
    }
    return await receive(store, { url, path, response, have: resumed ? have : 0 }, silence, options);
  } finally {
    silence.end();
  }
}

/** The stored part is not the start of the current file, so the download starts again. */
async function restart(store: FileStore, path: string): Promise<never> {
  await writeNote(store, path, { etag: null, size: 0, complete: false });
  throw new Error('the file has changed');
}

function checkStatus({ status, statusText }: Response, url: string): void {
  if (status === 200 || status === 206) return;
  const answer = `the server answered ${status} ${statusText}`.trim();
  if (status >= 500 || status === 429 || status === 408) throw new Error(answer);
  const isGated = status === 401 || status === 403;
  const hint = !isGated
    ? ''
    : isInPage()
      ? ' A page sends no token: use the command line.'
      : ' It needs a token: set HF_TOKEN.';
  throw new InputError(`${url} could not be downloaded: ${answer}.${hint}`);
}

/** Writes the body from byte `have` on, or from byte 0 if the server sent the complete file. */
async function receive(
  store: FileStore,
  { url, path, response, have }: { url: string; path: string; response: Response; have: number },
  silence: Silence,
  { onProgress, maxBytes = Infinity }: DownloadOptions,
): Promise<Kept> {
  const at = response.status === 206 ? have : 0;
  const total = totalOf(response, at);
  const etag = response.headers.get('etag');
  await writeNote(store, path, { etag, size: at, complete: false });
  const writer = await store.writer(path, at);
  let received = at;
  try {
    for await (const chunk of chunksOf(response)) {
      silence.heard(chunk.length);
      received += chunk.length;
      if (received > maxBytes) {
        throw new InputError(`${url} sends more than the ${maxBytes} bytes allowed. Nothing of it is used.`);
      }
      await writer.write(chunk);
      onProgress?.({ file: path.slice(path.lastIndexOf('/') + 1), received, total });
    }
  } finally {
    await writer.close();
    await writeNote(store, path, { etag, size: Math.min(received, maxBytes), complete: false });
  }
  if (total !== undefined && received !== total) throw new Error(`${received} of ${total} bytes arrived`);
  return { etag, size: received, complete: false };
}

/**
 * Size of the complete file; undefined if the server does not send it. Throws if the response has another range than
 * requested.
 */
function totalOf({ status, headers }: Response, at: number): number | undefined {
  if (status === 206) {
    const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(headers.get('content-range') ?? '');
    if (!range || Number(range[1]) !== at)
      throw new Error(`bytes from ${at} were requested, but "${headers.get('content-range')}" arrived`);
    return range[2] === '*' ? undefined : Number(range[2]);
  }
  const length = headers.get('content-length');
  return length === null || headers.has('content-encoding') ? undefined : Number(length);
}

/** Iterates over the chunks of a response's body. */
export async function* chunksOf({ body }: Response): AsyncIterable<Uint8Array> {
  if (!body) return;
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // Closes the connection if the caller stops before the end of the body.
    await reader.cancel().catch(() => undefined);
  }
}

/** Aborts a request that receives too few bytes in some time. */
class Silence {
  readonly #controller = new AbortController();
  readonly #ms: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #bytes = 0;

  constructor(ms: number) {
    this.#ms = ms;
    this.#start();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  heard(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes >= LEAST_BYTES) this.#start();
  }

  #start(): void {
    clearTimeout(this.#timer);
    this.#bytes = 0;
    const reason = new Error(`the server sent next to nothing for ${this.#ms / 1000} s`);
    this.#timer = setTimeout(() => this.#controller.abort(reason), this.#ms);
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}

/**
 * Describes the difference between a downloaded file and the expected one, as the end of a sentence; undefined if they
 * agree.
 */
async function findProblem(store: FileStore, path: string, kept: Kept, { size, sha256, gitSha1 }: Expected) {
  if (kept.complete) return undefined;
  if (size !== undefined && kept.size !== size) return `has ${kept.size} bytes, but ${size} were expected`;
  if (sha256 !== undefined) {
    const found = await sha256Of(store, path, kept.size);
    return found === sha256 ? undefined : `has the SHA-256 ${found}, but ${sha256} was expected`;
  }
  if (gitSha1 === undefined) return undefined;
  const found = await gitSha1Of(store, path, kept.size);
  return found === gitSha1 ? undefined : `has the git hash ${found}, but ${gitSha1} was expected`;
}

async function sha256Of(store: FileStore, path: string, size: number): Promise<string> {
  const hash = new Sha256();
  for (let at = 0; at < size; at += HASH_BYTES) {
    hash.update(await store.read(path, at, Math.min(size, at + HASH_BYTES)));
  }
  return hash.hex();
}

/** Hashes the complete file at once; only for small files. */
async function gitSha1Of(store: FileStore, path: string, size: number): Promise<string> {
  const head = new TextEncoder().encode(`blob ${size}\0`);
  const bytes = concat(Uint8Array, [head, await store.read(path, 0, size)]);
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-1', bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function readNote(store: FileStore, path: string): Promise<Kept | undefined> {
  // If the note `<path>.json` cannot be parsed, it counts as missing, and the file is downloaded again.
  const note = await readStoredJson(store, noteOf(path)).catch(() => undefined);
  return note as unknown as Kept | undefined;
}

const writeNote = (store: FileStore, path: string, note: Kept) => writeFile(store, noteOf(path), JSON.stringify(note));

/** Returns the reason of a failed request. The message of fetch is only "fetch failed"; its cause has the reason. */
function reasonOf(error: unknown): string {
  const { message, cause } = error as Error;
  return cause instanceof Error && cause.message ? cause.message : message;
}
