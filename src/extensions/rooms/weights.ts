/** Stores a room's weights by version, in the object store of its NATS server. Only the controller can write; workers can read. */

import type { NatsConnection } from '@nats-io/nats-core';
import type { ObjectStore } from '@nats-io/obj';
import { WEIGHTS_BUCKET, weightsStream } from './names.ts';

/** Size of a chunk in bytes: a message of the object store, smaller than the default limit of any server. */
const CHUNK_BYTES = 512 * 1024;
/** Number of chunks that are requested at the same time. */
const ASKED_AT_ONCE = 8;

/** Writes files and versions of the weights to the object store of a room. */
export class WeightStore {
  readonly #store: ObjectStore;
  readonly #keep: number;
  readonly #versions: number[] = [];

  private constructor(store: ObjectStore, keep: number) {
    this.#store = store;
    this.#keep = keep;
  }

  /**
   * Opens the object store, or creates it.
   * @param keep number of versions to store; a worker that is reading an older one starts again with the newest
   */
  static async open(connection: NatsConnection, keep = 2): Promise<WeightStore> {
    const { Objm } = await import('@nats-io/obj');
    const { StorageType } = await import('@nats-io/jetstream');
    const store = await new Objm(connection).create(WEIGHTS_BUCKET, { storage: StorageType.File });
    const opened = new WeightStore(store, keep);
    for (const { name, deleted } of await store.list())
      if (!deleted && /^v\d+$/.test(name)) opened.#versions.push(Number(name.slice(1)));
    opened.#versions.sort((a, b) => a - b);
    return opened;
  }

  /** Stores a file, or replaces it. Resolves to the file's SHA-256 in the notation of NATS's object store. */
  async put(name: string, bytes: Uint8Array): Promise<string> {
    const { digest } = await this.#store.putBlob({ name, options: { max_chunk_size: CHUNK_BYTES } }, bytes);
    return digest;
  }

  /** Stores a version of the weights, and deletes all but the newest `keep` versions. Resolves to the file's SHA-256. */
  async putVersion(version: number, bytes: Uint8Array): Promise<string> {
    const digest = await this.put(nameOf(version), bytes);
    if (!this.#versions.includes(version)) this.#versions.push(version);
    for (const old of this.#versions.splice(0, this.#versions.length - this.#keep))
      await this.#store.delete(nameOf(old));
    return digest;
  }
}

/** Returns the name of a weight version's file in the object store. */
export const nameOf = (version: number): string => `v${version}`;

interface Described {
  nuid: string;
  chunks: number;
  size: number;
  digest: string;
  deleted?: boolean;
}

/**
 * Reads a file of the object store. Undefined if it is missing, was deleted, or does not have the digest `wanted`. Reads the store's
 * messages directly: NATS's own reader creates a consumer, which workers may not do. Throws RangeError if the bytes do not match the stored
 * digest.
 */
export async function readObject(
  connection: NatsConnection,
  name: string,
  wanted?: string,
): Promise<Uint8Array | undefined> {
  const { jetstreamManager } = await import('@nats-io/jetstream');
  const { direct } = await jetstreamManager(connection, { checkAPI: false });
  const subject = `$O.${WEIGHTS_BUCKET}.M.${btoa(name).replace(/\+/g, '-').replace(/\//g, '_')}`;
  const described = await direct.getMessage(weightsStream, { last_by_subj: subject });
  if (!described) return undefined;
  const { nuid, chunks, size, digest, deleted = false } = described.json<Described>();
  if (deleted || (wanted !== undefined && wanted !== digest)) return undefined;
  const chunk = `$O.${WEIGHTS_BUCKET}.C.${nuid}`;
  const first = await direct.getMessage(weightsStream, { seq: 1, next_by_subj: chunk });
  if (!first) return undefined;
  const bytes = new Uint8Array(size);
  let read = 0;
  for (let at = 0; at < chunks; at += ASKED_AT_ONCE) {
    const asked = Array.from({ length: Math.min(ASKED_AT_ONCE, chunks - at) }, (_, i) => first.seq + at + i);
    for (const message of await Promise.all(asked.map((seq) => direct.getMessage(weightsStream, { seq })))) {
      if (message?.subject !== chunk || read + message.data.length > size) return undefined; // deleted meanwhile
      bytes.set(message.data, read);
      read += message.data.length;
    }
  }
  const sum = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  if (read === size && digest === `SHA-256=${base64Url(sum)}`) return bytes;
  throw new RangeError(
    `"${name}" of the room arrived damaged: ${read} of ${size} bytes, and another hash than was written.`,
  );
}

/** Returns bytes as padded base64 with the letters of URLs. */
export const base64Url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replace(/\+/g, '-')
    .replace(/\//g, '_');
