/** Files in the browser's own file system (OPFS), for pages and workers. */

import type { FileStore } from './fileStore.ts';

/** A store under `folder`. Throws where the browser has no OPFS, or the page no secure context. */
export async function opfsStore(folder: string): Promise<FileStore> {
  const root = await navigator.storage.getDirectory();
  const base = await root.getDirectoryHandle(folder, { create: true });
  const fileOf = async (path: string, create: boolean): Promise<FileSystemFileHandle | undefined> => {
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
    async writer(path, at) {
      const handle = (await fileOf(path, true))!;
      const stream = await handle.createWritable({ keepExistingData: at > 0 });
      if (at > 0) await stream.truncate(at);
      await stream.seek(at);
      return {
        write: (bytes) => stream.write(bytes as Uint8Array<ArrayBuffer>),
        close: () => stream.close(),
      };
    },
  };
}
