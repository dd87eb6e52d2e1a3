/** Where downloaded files are kept: a folder on disk (`src/cli/diskStore.ts`), the browser's OPFS (`opfs.ts`). */

import type { CheckpointFiles } from './open.ts';

/** Paths have "/" between their parts; folders come to be as needed. */
export interface FileStore extends CheckpointFiles {
  /** Writes from byte `at` on; what lay behind is dropped. Closing keeps what was written, whole or not. */
  writer(path: string, at: number): Promise<FileWriter>;
}

export interface FileWriter {
  write(bytes: Uint8Array): Promise<void>;
  close(): Promise<void>;
}

export async function writeFile(store: FileStore, path: string, text: string): Promise<void> {
  const writer = await store.writer(path, 0);
  try {
    await writer.write(new TextEncoder().encode(text));
  } finally {
    await writer.close();
  }
}
