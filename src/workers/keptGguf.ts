/** Stores GGUF files that a user gives to the page in the browser's file system (OPFS). A worker reads them there by name. */

import { InputError } from '../errors.ts';
import { opfsStore } from '../model/checkpoint/opfs.ts';
import type { CheckpointFiles } from '../model/checkpoint/sourceFiles.ts';
import type { FileStore } from '../model/checkpoint/store.ts';

const FOLDER = 'gguf';

/** Returns the name under which a file is stored. It has only letters, digits, "_", "." and "-", which need no escape in an address. */
export const keptName = (name: string): string => `${name.replace(/\.gguf$/i, '').replaceAll(/[^\w.-]+/g, '-')}.gguf`;

/**
 * Stores a file and returns its name: the one of `keptName`, with a number if the browser stores another file of that name. A run is resumed
 * with the file of its name, so no file is replaced. Throws InputError if the disk is full. Then the file is not stored.
 */
export async function keepGguf(file: File): Promise<string> {
  const store = await opfsStore(FOLDER);
  const first = keptName(file.name);
  for (let name = first, n = 2; ; name = first.replace(/\.gguf$/, `-${n++}.gguf`)) {
    const size = (await store.size(name)) ?? 0; // a tab that was closed while it wrote leaves an empty file
    if (size === 0) await write(store, name, file);
    if (size === 0 || (size === file.size && (await isStored(store, name, file)))) return name;
  }
}

async function isStored(store: FileStore, name: string, file: Blob): Promise<boolean> {
  for (let at = 0; at < file.size; at += PIECE_BYTES) {
    const stored = await store.read(name, at, at + PIECE_BYTES);
    const given = new Uint8Array(await file.slice(at, at + PIECE_BYTES).arrayBuffer());
    if (!given.every((byte, i) => byte === stored[i])) return false;
  }
  return true;
}

async function write(store: FileStore, name: string, file: Blob): Promise<void> {
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
