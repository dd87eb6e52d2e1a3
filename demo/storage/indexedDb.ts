/**
 * Run folders in IndexedDB, for windows without OPFS: one record per file, keyed by its path. Each change is one transaction, so folders
 * are replaced and renamed completely or not at all.
 */

import { type IDBPDatabase, openDB } from 'idb';
import { InputError } from '../../src/errors.ts';
import { roomError } from '../../src/model/checkpoint/opfs.ts';
import { Sha256 } from '../../src/model/checkpoint/sha256.ts';
import type { FileSystem, FolderFiles } from '../../src/runs/fileSystem.ts';

const STORE = 'files';

/** Opens the files of the database `name`. Rejects if the browser has no IndexedDB. */
export async function indexedDbFileSystem(name: string): Promise<FileSystem> {
  const db = await openDB(name, 1, { upgrade: (created) => void created.createObjectStore(STORE) });
  return new IndexedDbFiles(db);
}

class IndexedDbFiles implements FileSystem {
  readonly #db: IDBPDatabase;

  constructor(db: IDBPDatabase) {
    this.#db = db;
  }

  async exists(path: string): Promise<boolean> {
    return (await this.#db.count(STORE, path)) + (await this.#db.count(STORE, inside(path))) > 0;
  }

  async list(folder: string): Promise<string[]> {
    const paths = (await this.#db.getAllKeys(STORE, inside(folder))) as string[];
    return [...new Set(paths.map((path) => path.slice(folder.length + 1).split('/')[0]))];
  }

  async size(path: string): Promise<number | undefined> {
    return (await this.#get(path))?.length;
  }

  async read(path: string, begin?: number, end?: number): Promise<Uint8Array> {
    const bytes = await this.#get(path);
    if (bytes) return begin === undefined && end === undefined ? bytes : bytes.slice(begin, end);
    throw new InputError(`Cannot read ${path}: file not found in browser storage.`);
  }

  async sha256(path: string): Promise<string> {
    return new Sha256().update(await this.read(path)).hex();
  }

  write(path: string, content: string | Uint8Array): Promise<void> {
    return this.#change('write', path, async (store) => void (await store.put(bytesOf(content), path)));
  }

  append(path: string, content: string | Uint8Array): Promise<void> {
    return this.#change('write', path, async (store) => {
      const before = ((await store.get(path)) as Uint8Array | undefined) ?? new Uint8Array();
      const added = bytesOf(content);
      const all = new Uint8Array(before.length + added.length);
      all.set(before);
      all.set(added, before.length);
      await store.put(all, path);
    });
  }

  writeFolder(path: string, files: FolderFiles): Promise<void> {
    return this.#change('write', path, async (store) => {
      await store.delete(inside(path));
      for (const [name, content] of files) await store.put(bytesOf(content), `${path}/${name}`);
    });
  }

  rename(from: string, to: string): Promise<void> {
    return this.#change('rename', from, async (store) => {
      for (const path of (await store.getAllKeys(inside(from))) as string[])
        await store.put(await store.get(path), `${to}${path.slice(from.length)}`);
      await store.delete(inside(from));
    });
  }

  remove(folder: string): Promise<void> {
    return this.#change('delete', folder, async (store) => {
      await store.delete(folder);
      await store.delete(inside(folder));
    });
  }

  async tidy(): Promise<void> {}

  async free(): Promise<number | undefined> {
    const { usage = 0, quota } = (await navigator.storage?.estimate()) ?? {};
    return quota === undefined ? undefined : Math.max(0, quota - usage);
  }

  #get(path: string): Promise<Uint8Array | undefined> {
    return this.#db.get(STORE, path) as Promise<Uint8Array | undefined>;
  }

  async #change(verb: string, path: string, work: (store: Writable) => Promise<void>): Promise<void> {
    const change = this.#db.transaction(STORE, 'readwrite');
    try {
      await Promise.all([work(change.store as Writable), change.done]);
    } catch (error) {
      const reason = await roomError(error, path);
      if (!(reason instanceof DOMException)) throw reason;
      throw new InputError(`The browser cannot ${verb} ${path}: ${reason.message}`, { cause: error });
    }
  }
}

interface Writable {
  get(path: string): Promise<unknown>;
  getAllKeys(range: IDBKeyRange): Promise<IDBValidKey[]>;
  put(content: unknown, path: string): Promise<unknown>;
  delete(path: string | IDBKeyRange): Promise<void>;
}

/** Range of every path in a folder: "0" is the character after "/". */
const inside = (folder: string): IDBKeyRange => IDBKeyRange.bound(`${folder}/`, `${folder}0`, true, true);

const bytesOf = (content: string | Uint8Array): Uint8Array =>
  typeof content === 'string' ? new TextEncoder().encode(content) : content;
