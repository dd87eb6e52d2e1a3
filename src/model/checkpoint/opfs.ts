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

/** A store under `folder`. Throws where the browser has no OPFS, or the page no secure context. */
export async function opfsStore(folder: string): Promise<FileStore> {
  const root = await navigator.storage.getDirectory();
  const base = await root.getDirectoryHandle(folder, { create: true });
  const fileOf = async (path: string, create: boolean): Promise<FileHandle | undefined> => {
    const parts = path.split('/');
    let at = base;
    try {
      for (const part of parts.slice(0, -1)) at = await at.getDirectoryHandle(part, { create });
      return await at.getFileHandle(parts[parts.length - 1], { create });
    } catch (error) {
      if (!create && error instanceof DOMException && error.name === 'NotFoundError') return undefined;
      throw error;
    }
  };
  return {
    size: async (path) => (await (await fileOf(path, false))?.getFile())?.size,
    async read(path, begin, end) {
      const handle = await fileOf(path, false);
      if (!handle) throw new Error(`OPFS has no file ${path}.`);
      return new Uint8Array(await (await handle.getFile()).slice(begin, end).arrayBuffer());
    },
    writer: async (path, at) => explained(path, await openWriter((await fileOf(path, true))!, path, at)),
  };
}

async function openWriter(handle: FileHandle, path: string, at: number): Promise<FileWriter> {
  if (!handle.createSyncAccessHandle) return streamWriter(handle, at);
  const access = await handle.createSyncAccessHandle().catch((error: unknown) => {
    if (!(error instanceof DOMException && error.name === 'NoModificationAllowedError')) throw error;
    throw new InputError(`${path} is being written by another tab of this page; wait for it, or close it.`);
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
        if (!(error instanceof DOMException && error.name === 'QuotaExceededError')) throw error;
        const { usage = 0, quota = 0 } = await navigator.storage.estimate();
        const mib = (n: number) => `${Math.round(n / 2 ** 20)} MiB`;
        throw new InputError(
          `The browser has no room left for ${path}: this page uses ${mib(usage)} of ${mib(quota)}; clear the page's site ` +
            'data, free disk space, or take a smaller model.',
        );
      }
    },
  };
}
