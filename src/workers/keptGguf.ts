/** Stores GGUF files that a user gives to the page in the browser's file system (OPFS). A worker reads them there by name. */

import { InputError } from '../errors.ts';
import { opfsStore } from '../model/checkpoint/opfs.ts';
import type { CheckpointFiles } from '../model/checkpoint/sourceFiles.ts';

const FOLDER = 'gguf';

/** Returns the name under which a file is stored. It has only letters, digits, "_", "." and "-", which need no escape in an address. */
export const keptName = (name: string): string => `${name.replace(/\.gguf$/i, '').replaceAll(/[^\w.-]+/g, '-')}.gguf`;

/**
 * Stores a file under a name from `keptName`, and replaces an older file of that name. Throws InputError if the disk is full. Then no file
 * of that name is stored.
 */
export async function keepGguf(name: string, file: Blob): Promise<void> {
  const store = await opfsStore(FOLDER);
  const writer = await store.writer(name, 0);
  try {
    for (let at = 0; at < file.size; at += PIECE_BYTES)
      await writer.write(new Uint8Array(await file.slice(at, at + PIECE_BYTES).arrayBuffer()));
    await writer.close();
  } catch (error) {
    await writer.close().catch(() => {}); // the first error is the one to report
    await (
      await navigator.storage.getDirectory()
    )
      .getDirectoryHandle(FOLDER)
      .then((folder) => folder.removeEntry(name));
    throw error;
  }
}

const PIECE_BYTES = 8 << 20;

/** Returns the stored file with this name. Its `size` throws InputError if the browser does not have the file. */
export async function keptGguf(name: string): Promise<CheckpointFiles> {
  const store = await opfsStore(FOLDER);
  return {
    ...store,
    gguf: name,
    async size() {
      const size = await store.size(name);
      if (size !== undefined) return size;
      throw new InputError(`This browser does not keep ${name}. Choose the file again under "Your model".`);
    },
  };
}
