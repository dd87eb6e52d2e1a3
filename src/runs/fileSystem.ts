/** The file system under a run folder. One interface for a disk (`src/cli/diskFiles.ts`) and for a browser (`opfs.ts`). */

import type { CheckpointFiles } from '../model/checkpoint/sourceFiles.ts';

/** File contents by name, in the order in which they are written. */
export type FolderFiles = ReadonlyMap<string, Uint8Array | string>;

/** Paths use "/" as separator. Folders are created as needed. Methods reject with InputError if a read or write fails. */
export interface FileSystem {
  /** True for a file or a folder. */
  exists(path: string): Promise<boolean>;
  /** Names in a folder, in no order; empty if the folder does not exist. */
  list(folder: string): Promise<string[]>;
  /** Bytes of a file; undefined if the file does not exist. */
  size(path: string): Promise<number | undefined>;
  /** Reads the full file, or its bytes begin..end, fewer if the file ends earlier. */
  read(path: string, begin?: number, end?: number): Promise<Uint8Array>;
  /** SHA-256 of a file in lower-case hexadecimal; a large file is not loaded into memory at once. */
  sha256(path: string): Promise<string>;
  /** Replaces a file atomically: its content is complete or unchanged, whenever the process ends. */
  write(path: string, content: string | Uint8Array): Promise<void>;
  /** Appends to a file, which is created if needed. A killed process leaves the text complete, in part or not at all. */
  append(path: string, content: string | Uint8Array): Promise<void>;
  /**
   * Writes a folder of these files atomically. If the place cannot do that, the last file is written once all others are complete.
   * Replaces an older folder `name`. A killed process leaves the old folder, the new one, or the old one as `.name.old` until
   * `tidy`.
   */
  writeFolder(path: string, files: FolderFiles): Promise<void>;
  /** Renames a folder to a name that is not in use. */
  rename(from: string, to: string): Promise<void>;
  /** Deletes a folder with its content, if it exists. */
  remove(folder: string): Promise<void>;
  /** Completes or removes what a killed process left unfinished in a folder and its folders. There must be no other writer. */
  tidy(folder: string): Promise<void>;
  /** Free space in bytes; undefined if it is unknown. */
  free(path: string): Promise<number | undefined>;
}

/** Reads the text of a file. */
export async function readFileText(files: FileSystem, path: string): Promise<string> {
  return new TextDecoder().decode(await files.read(path));
}

/** Returns the first free path of `path`-1, `path`-2, ... */
export async function freeName(files: FileSystem, path: string): Promise<string> {
  for (let n = 1; ; n++) if (!(await files.exists(`${path}-${n}`))) return `${path}-${n}`;
}

/** Returns a folder of a file system in the form from which a model is opened. */
export const filesIn = (files: FileSystem, folder: string): CheckpointFiles => ({
  size: (name) => files.size(`${folder}/${name}`),
  read: (name, begin, end) => files.read(`${folder}/${name}`, begin, end),
  names: () => files.list(folder),
});
