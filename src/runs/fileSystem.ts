/** What a run folder asks of the place it lies in, so that it is one code on a disk (`src/cli/diskFiles.ts`) and in a browser (`opfs.ts`). */

import type { CheckpointFiles } from '../model/checkpoint/sourceFiles.ts';

/** Name to content, in the order in which they are written. */
export type FolderFiles = ReadonlyMap<string, Uint8Array | string>;

/** Paths have "/" between their parts. Folders come to be as needed. What cannot be read or written rejects with InputError. */
export interface FileSystem {
  /** True for a file or a folder. */
  exists(path: string): Promise<boolean>;
  /** Names in a folder, in no order; none where there is no such folder. */
  list(folder: string): Promise<string[]>;
  /** Bytes of a file; undefined where there is no such file. */
  size(path: string): Promise<number | undefined>;
  /** The whole file, or its bytes begin..end: as many of them as there are. */
  read(path: string, begin?: number, end?: number): Promise<Uint8Array>;
  /** Of a file, as lower-case hexadecimal; a large file is not read into memory as a whole. */
  sha256(path: string): Promise<string>;
  /** Whole content or none, at whatever moment the process ends. */
  write(path: string, content: string | Uint8Array): Promise<void>;
  /** At the end of a file, which comes to be; a process that ends leaves the whole text, a part of it or none. */
  append(path: string, content: string | Uint8Array): Promise<void>;
  /**
   * A folder of these files, all or none, or where the place cannot do that, the last file only where all others are whole.
   * Replaces an older folder `name`, of which a process that ends leaves it, the new one, or the older one as `.name.old` until
   * `tidy`.
   */
  writeFolder(path: string, files: FolderFiles): Promise<void>;
  /** Gives a folder another name, which no other has. */
  rename(from: string, to: string): Promise<void>;
  /** Deletes a folder with all that is in it; none is none. */
  remove(folder: string): Promise<void>;
  /** Ends what a killed process left half-done in a folder and the folders in it. Nobody else may be writing there. */
  tidy(folder: string): Promise<void>;
  /** Bytes that can still be written there; undefined where the place does not say. */
  free(path: string): Promise<number | undefined>;
}

/** Text of a file. */
export async function readFileText(files: FileSystem, path: string): Promise<string> {
  return new TextDecoder().decode(await files.read(path));
}

/** The first of `path`-1, `path`-2, ... that is free. */
export async function freeName(files: FileSystem, path: string): Promise<string> {
  for (let n = 1; ; n++) if (!(await files.exists(`${path}-${n}`))) return `${path}-${n}`;
}

/** A folder of a file system, to open a model from. */
export const filesIn = (files: FileSystem, folder: string): CheckpointFiles => ({
  size: (name) => files.size(`${folder}/${name}`),
  read: (name, begin, end) => files.read(`${folder}/${name}`, begin, end),
});
