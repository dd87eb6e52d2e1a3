/**
 * Cache on disk, shared by all runs: timed kernel variants and downloaded models. It is in `WEBGRPO_CACHE`, or in the user's cache folder.
 */

import { mkdir, open } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import type { FileStore } from '../model/checkpoint/store.ts';
import { folderFiles } from './files.ts';
import { currentIo } from './process/io.ts';

/** Returns the folder of downloaded models. */
export function modelCache(env: NodeJS.ProcessEnv = currentIo().env): string {
  if (env['WEBGRPO_CACHE']) return env['WEBGRPO_CACHE'];
  return join(env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'webgrpo', 'models');
}

/** Returns the store of timed kernel variants, a folder next to the downloaded models. */
export const tuningStore = (): FileStore => diskStore(join(modelCache(), 'kernels'));

/** Returns a store whose files are in `folder`. */
export function diskStore(folder: string): FileStore {
  return {
    ...folderFiles(folder),
    async writer(name, at) {
      const path = join(folder, name);
      await mkdir(dirname(path), { recursive: true });
      const file = await open(path, at > 0 ? 'r+' : 'w');
      if (at > 0) await file.truncate(at);
      let position = at;
      return {
        async write(bytes) {
          await file.write(bytes, 0, bytes.length, position);
          position += bytes.length;
        },
        close: () => file.close(),
      };
    },
  };
}
