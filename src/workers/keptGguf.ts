/** GGUF files that a user gave to a page, kept in the browser's own file system: a worker reads them there by name. */

import { InputError } from '../errors.ts';
import { opfsStore } from '../model/checkpoint/opfs.ts';
import { type CheckpointFiles, isGguf } from '../model/checkpoint/sourceFiles.ts';

const FOLDER = 'gguf';

/** True if a model's address is the name of such a file. */
export const isKeptGguf = (address: string): boolean => isGguf(address) && !address.includes('/');

/** Name by which a file is kept, of letters that every address takes. */
export const keptName = (name: string): string => `${name.replace(/\.gguf$/i, '').replaceAll(/[^\w.-]+/g, '-')}.gguf`;

/** Keeps a file under a name of `keptName`, in place of an older one. Throws InputError if the disk is full. */
export async function keepGguf(name: string, file: Blob): Promise<void> {
  const store = await opfsStore(FOLDER);
  const writer = await store.writer(name, 0);
  try {
    for (let at = 0; at < file.size; at += PIECE_BYTES)
      await writer.write(new Uint8Array(await file.slice(at, at + PIECE_BYTES).arrayBuffer()));
  } finally {
    await writer.close();
  }
}

const PIECE_BYTES = 8 << 20;

/** The kept file. Its size throws InputError if the browser lacks it. */
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
