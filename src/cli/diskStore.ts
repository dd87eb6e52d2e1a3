/**
 * Cache on disk, shared by all runs: timed kernel variants and downloaded models. It is in `WEBGRPO_CACHE`, or in the user's cache folder.
 */

import { mkdir, open } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { InputError } from '../errors.ts';
import type { FileStore } from '../model/checkpoint/store.ts';
import { reasonOf } from './diskFiles.ts';
import { folderFiles } from './files.ts';
import { currentIo } from './process/io.ts';

/** Returns the folder of downloaded models. */
export function modelCache(env: NodeJS.ProcessEnv = currentIo().env): string {
  if (env['WEBGRPO_CACHE']) return env['WEBGRPO_CACHE'];
  return join(env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'webgrpo', 'models');
}

/** Returns the store of timed kernel variants, a folder next to the downloaded models. */
export const tuningStore = (): FileStore => diskStore(join(modelCache(), 'kernels'));

/** Returns a store whose files are in `folder`. Its writers throw InputError if the folder cannot be written. */
export function diskStore(folder: string): FileStore {
  const writing = <T>(work: () => Promise<T>) =>
    work().catch((error: unknown): never => {
      const reason = reasonOf(error);
      if (reason === undefined) throw error;
      throw new InputError(
        `The cache folder ${folder} cannot be written: ${reason}. Correct that, or set WEBGRPO_CACHE to another folder.`,
        { cause: error },
      );
    });
  return {
    ...folderFiles(folder),
    writer: (name, at) =>
      writing(async () => {
        const path = join(folder, name);
        await mkdir(dirname(path), { recursive: true });
        const file = await open(path, at > 0 ? 'r+' : 'w');
        if (at > 0) await file.truncate(at);
        let position = at;
        return {
          write: (bytes) =>
            writing(async () => {
              await file.write(bytes, 0, bytes.length, position);
              position += bytes.length;
            }),
          close: () => writing(() => file.close()),
        };
      }),
  };
}
