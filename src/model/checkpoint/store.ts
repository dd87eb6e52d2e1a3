/** Stores of downloaded files: a folder on disk (`src/cli/diskStore.ts`), the browser's OPFS (`opfs.ts`). */

import { concat } from '../../concat.ts';
import type { CheckpointFiles } from './sourceFiles.ts';

/** Files by path. A path has "/" between its parts; missing folders are created. */
export interface FileStore extends CheckpointFiles {
  /**
   * Writes from byte `at` on, and drops everything after the written bytes. Closing keeps what was written, even if the
   * file is not complete.
   */
  writer(path: string, at: number): Promise<FileWriter>;
}

export interface FileWriter {
  write(bytes: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

/** Writes a text file, replacing its content. */
export async function writeFile(store: FileStore, path: string, text: string): Promise<void> {
  const writer = await store.writer(path, 0);
  try {
    await writer.write(new TextEncoder().encode(text));
  } finally {
    await writer.close();
  }
}

/** A store in memory for files that are read once and not kept. */
export function memoryStore(): FileStore {
  const files = new Map<string, Uint8Array>();
  return {
    size: async (path) => files.get(path)?.length,
    read: async (path, begin, end) => files.get(path)!.slice(begin, end),
    async writer(path, at) {
      let content = files.get(path)?.slice(0, at) ?? new Uint8Array();
      return {
        async write(bytes) {
          content = concat(Uint8Array, [content, bytes]);
        },
        close: async () => void files.set(path, content),
      };
    },
  };
}
