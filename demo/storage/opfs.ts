/**
 * Run folders in the browser's own file system (OPFS), usable on any thread. OPFS cannot rename a folder. Therefore a folder counts as
 * complete only if it has a manifest, which is written last and deleted first. A file is replaced atomically when its writer is closed.
 */

import { InputError } from '../../src/errors.ts';
import { isDomError, opfsFile, roomError } from '../../src/model/checkpoint/opfs.ts';
import { Sha256 } from '../../src/model/checkpoint/sha256.ts';
import type { FileSystem } from '../../src/runs/fileSystem.ts';
import { MANIFEST } from '../../src/runs/manifest.ts';

/** Number of bytes that a page's thread handles at a time. Larger pieces would delay the page's reaction to clicks. */
const PIECE_BYTES = 2 ** 20;

/** `.NAME.old`: see `FileSystem.writeFolder`. */
const OLD = /^\.(.+)\.old$/;
const CHECKPOINT = /^step-\d+$/;

/** Returns the file system in the OPFS folder `root`. */
export function opfsFileSystem(root: FileSystemDirectoryHandle): FileSystem {
  const folderAt = async (path: string): Promise<FileSystemDirectoryHandle | undefined> => {
    let at: FileSystemDirectoryHandle | undefined = root;
    for (const part of path.split('/')) at = at && (await ifThere(at.getDirectoryHandle(part)));
    return at;
  };
  const fileAt = async (path: string): Promise<File | undefined> => {
    const file = await (await ifThere(opfsFile(root, path, false)))?.getFile();
    return file && file.size > 0 ? file : undefined; // a writer that was never closed leaves an empty file
  };
  const fileOf = async (path: string): Promise<File> => {
    const file = await fileAt(path);
    if (file) return file;
    throw new InputError(`Cannot read ${path}: file not found in browser storage.`);
  };
  const put = (path: string, content: Uint8Array | Blob, append = false): Promise<void> =>
    explained(
      'write',
      path,
      async () => putInto((await opfsFile(root, path, true))!, content, append),
      content instanceof Blob ? content.size : content.length,
    );
  const isWhole = async (folder: string) => (await fileAt(`${folder}/${MANIFEST}`)) !== undefined;
  const names = async (path: string): Promise<string[]> => {
    const found: string[] = [];
    for await (const name of (await folderAt(path))?.keys() ?? []) found.push(name);
    return found.sort((a, b) => Number(a === MANIFEST) - Number(b === MANIFEST));
  };

  async function copy(from: string, to: string): Promise<void> {
    for (const name of await names(from)) {
      const file = await fileAt(`${from}/${name}`);
      if (file) await put(`${to}/${name}`, file);
      else await copy(`${from}/${name}`, `${to}/${name}`);
    }
  }

  async function remove(path: string): Promise<void> {
    const [parents, name] = [path.split('/').slice(0, -1), path.split('/').at(-1)!];
    const parent = parents.length > 0 ? await folderAt(parents.join('/')) : root;
    const folder = await folderAt(path);
    await explained('delete', path, async () => {
      if (folder) await ifThere(folder.removeEntry(MANIFEST));
      if (parent) await ifThere(parent.removeEntry(name, { recursive: true }));
    });
  }

  async function rename(from: string, to: string): Promise<void> {
    await copy(from, to);
    await remove(from);
  }

  async function tidy(folder: string): Promise<void> {
    for (const name of await names(folder)) {
      const path = `${folder}/${name}`;
      const replaced = OLD.exec(name)?.[1];
      if (replaced !== undefined) {
        const inPlace = `${folder}/${replaced}`;
        if (await isWhole(inPlace)) await remove(path);
        else {
          await remove(inPlace);
          await rename(path, inPlace);
        }
      } else if (CHECKPOINT.test(name)) {
        if (!(await isWhole(path)) && !(await isWhole(`${folder}/.${name}.old`))) await remove(path);
      } else if (await folderAt(path)) await tidy(path);
    }
  }

  return {
    exists: async (path) => (await fileAt(path)) !== undefined || (await folderAt(path)) !== undefined,
    list: names,
    size: async (path) => (await fileAt(path))?.size,
    async read(path, begin, end) {
      const file = await fileOf(path);
      return explained('read', path, async () => new Uint8Array(await file.slice(begin, end).arrayBuffer()));
    },
    async sha256(path) {
      const file = await fileOf(path);
      const hash = new Sha256();
      for (let at = 0; at < file.size; at += PIECE_BYTES)
        hash.update(new Uint8Array(await file.slice(at, at + PIECE_BYTES).arrayBuffer()));
      return hash.hex();
    },
    write: (path, content) => put(path, bytesOf(content)),
    append: (path, content) => put(path, bytesOf(content), true),
    async writeFolder(path, files) {
      const old = path.replace(/[^/]+$/, '.$&.old');
      if (await isWhole(path)) {
        await remove(old);
        await copy(path, old);
      }
      await remove(path);
      for (const [name, content] of files) await put(`${path}/${name}`, bytesOf(content));
      await remove(old);
    },
    rename,
    remove,
    tidy,
    async free() {
      const { usage = 0, quota } = await navigator.storage.estimate();
      return quota === undefined ? undefined : Math.max(0, quota - usage);
    },
  };
}

/** Replaces a file, or appends to it, atomically. */
async function putInto(handle: FileSystemFileHandle, content: Uint8Array | Blob, append: boolean): Promise<void> {
  const writer = await handle.createWritable({ keepExistingData: append });
  try {
    if (append) await writer.seek((await handle.getFile()).size);
    if (content instanceof Blob) await writer.write(content);
    else
      for (let at = 0; at < content.length; at += PIECE_BYTES)
        await writer.write(content.subarray(at, at + PIECE_BYTES) as Uint8Array<ArrayBuffer>);
    await writer.close();
  } catch (error) {
    await writer.abort().catch(() => {}); // it has failed already, and the first error is the one to report
    throw error;
  }
}

/** Awaits a handle. Returns undefined if the entry does not exist, or is a folder instead of a file or a file instead of a folder. */
async function ifThere<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (isDomError(error, 'NotFoundError') || isDomError(error, 'TypeMismatchError')) return undefined;
    throw error;
  }
}

/** Runs `work`, and converts an error of the browser to an error message that names the file. */
async function explained<T>(verb: string, path: string, work: () => Promise<T>, bytes?: number): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const reason = await roomError(error, path, bytes);
    if (!(reason instanceof DOMException)) throw reason;
    throw new InputError(`The browser cannot ${verb} ${path}: ${reason.message}`, { cause: error });
  }
}

const bytesOf = (content: string | Uint8Array): Uint8Array =>
  typeof content === 'string' ? new TextEncoder().encode(content) : content;
