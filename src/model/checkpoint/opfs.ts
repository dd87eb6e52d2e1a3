/**
 * Files in the browser's own file system (OPFS). A worker writes in place, so data written before a tab is closed is
 * not lost. On a page's main thread a file changes only when its writer is closed.
 */

import { InputError } from '../../errors.ts';
import type { FileStore, FileWriter } from './store.ts';

/** Synchronous access to an OPFS file. Only workers have it; TypeScript's DOM types for pages lack it. */
interface SyncAccessHandle {
  truncate(size: number): void;
  write(bytes: Uint8Array, options: { at: number }): number;
  flush(): void;
  close(): void;
}
type FileHandle = FileSystemFileHandle & { createSyncAccessHandle?: () => Promise<SyncAccessHandle> };

/**
 * Returns the file at a path. If the file is missing, creates it and its folders if `create` is true; otherwise returns
 * undefined.
 */
export async function opfsFile(
  root: FileSystemDirectoryHandle,
  path: string,
  create: boolean,
): Promise<FileHandle | undefined> {
  const parts = path.split('/');
  const name = parts.pop()!;
  try {
    let at = root;
    for (const part of parts) at = await at.getDirectoryHandle(part, { create });
    return await at.getFileHandle(name, { create });
  } catch (error) {
    if (!create && isDomError(error, 'NotFoundError')) return undefined;
    throw error;
  }
}

/** True for a DOMException with a given name. */
export const isDomError = (error: unknown, name: string): boolean =>
  error instanceof DOMException && error.name === name;

/**
 * Converts the error of a full disk to a readable one; returns any other error unchanged. Reports the browser's
 * estimate of free space, but does not rely on it: Chromium always reports 10 GiB.
 * @param needed bytes to be written, if known
 */
export async function roomError(error: unknown, path: string, needed?: number): Promise<unknown> {
  if (!isDomError(error, 'QuotaExceededError')) return error;
  const { usage = 0, quota = 0 } = await navigator.storage.estimate();
  const mib = (bytes: number) => `${Math.round(bytes / 2 ** 20)} MiB`;
  const size = needed === undefined ? '' : ` (${needed} bytes)`;
  return new InputError(
    `The browser has no space left for ${path}${size}: this page uses ${mib(usage)} of ${mib(quota)}. Clear the ` +
      "page's site data, free disk space, or take a smaller model.",
    { cause: error },
  );
}

const NO_FILES =
  'This window cannot store the files of a model, as private windows and Safari before 26 cannot. Open the page in ' +
  'another window or browser.';

/** Opens a store in `folder`. Throws InputError if the browser has no OPFS, or the page is not a secure context. */
export async function opfsStore(folder: string): Promise<FileStore> {
  const base = await Promise.resolve()
    .then(() => navigator.storage.getDirectory())
    .then((root) => root.getDirectoryHandle(folder, { create: true }))
    .catch((error: unknown) => {
      throw new InputError(NO_FILES, { cause: error });
    });
  return {
    size: async (path) => (await (await opfsFile(base, path, false))?.getFile())?.size,
    async read(path, begin, end) {
      const handle = await opfsFile(base, path, false);
      if (!handle) throw new Error(`OPFS has no file ${path}.`);
      return new Uint8Array(await (await handle.getFile()).slice(begin, end).arrayBuffer());
    },
    async writer(path, at) {
      const { prototype } = FileSystemFileHandle;
      if (!('createSyncAccessHandle' in prototype || 'createWritable' in prototype)) throw new InputError(NO_FILES);
      return explained(path, await openWriter((await opfsFile(base, path, true))!, path, at));
    },
  };
}

async function openWriter(handle: FileHandle, path: string, at: number): Promise<FileWriter> {
  if (!handle.createSyncAccessHandle) return streamWriter(handle, at);
  const access = await handle.createSyncAccessHandle().catch((error: unknown) => {
    if (!isDomError(error, 'NoModificationAllowedError')) throw error;
    throw new InputError(`Another tab of this page is writing ${path}. Wait until it finishes, or close that tab.`);
  });
  access.truncate(at);
  let position = at;
  return {
    async write(bytes) {
      position += access.write(bytes, { at: position });
    },
    async close() {
      access.flush();
      access.close();
    },
  };
}

async function streamWriter(handle: FileHandle, at: number): Promise<FileWriter> {
  const stream = await handle.createWritable({ keepExistingData: at > 0 });
  if (at > 0) await stream.truncate(at);
  await stream.seek(at);
  return {
    write: (bytes) => stream.write(bytes as Uint8Array<ArrayBuffer>),
    close: () => stream.close(),
  };
}

/** Converts the error of a full disk to an InputError, because a further attempt cannot help. */
function explained(path: string, writer: FileWriter): FileWriter {
  return {
    ...writer,
    async write(bytes) {
      try {
        await writer.write(bytes);
      } catch (error) {
        throw await roomError(error, path);
      }
    },
  };
}
