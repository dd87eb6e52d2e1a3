/**
 * Files in the browser's own file system (OPFS). A worker writes in place, so what came before a tab was closed is kept; on
 * a page's main thread, which has no such access, a file changes when its writer is closed.
 */

import { InputError } from '../../errors.ts';
import type { FileStore, FileWriter } from './store.ts';

/** Workers alone have it; the types of pages do not know it. */
interface SyncAccessHandle {
  truncate(size: number): void;
  write(bytes: Uint8Array, options: { at: number }): number;
  flush(): void;
  close(): void;
}
type FileHandle = FileSystemFileHandle & { createSyncAccessHandle?: () => Promise<SyncAccessHandle> };

/** The file at a path, which comes to be with its folders if `create`; else undefined if there is none. */
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

export const isDomError = (error: unknown, name: string): boolean =>
  error instanceof DOMException && error.name === name;

/**
 * A full disk as a sentence; any other error as it is. What the browser says of its room is told and not believed: Chromium always speaks of
 * 10 GiB. @param needed bytes that were to be written, where they are known
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

/** A store under `folder`. Throws where the browser has no OPFS, or the page no secure context. */
export async function opfsStore(folder: string): Promise<FileStore> {
  const root = await navigator.storage.getDirectory();
  const base = await root.getDirectoryHandle(folder, { create: true });
  return {
    size: async (path) => (await (await opfsFile(base, path, false))?.getFile())?.size,
    async read(path, begin, end) {
      const handle = await opfsFile(base, path, false);
      if (!handle) throw new Error(`OPFS has no file ${path}.`);
      return new Uint8Array(await (await handle.getFile()).slice(begin, end).arrayBuffer());
    },
    writer: async (path, at) => explained(path, await openWriter((await opfsFile(base, path, true))!, path, at)),
  };
}

async function openWriter(handle: FileHandle, path: string, at: number): Promise<FileWriter> {
  if (!handle.createSyncAccessHandle) return streamWriter(handle, at);
  const access = await handle.createSyncAccessHandle().catch((error: unknown) => {
    if (!isDomError(error, 'NoModificationAllowedError')) throw error;
    throw new InputError(`${path} is being written by another tab of this page. Wait for it, or close it.`);
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

/** A full disk is nothing that another attempt helps. */
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
