/**
 * Interface of the file system that run folders are in. It is implemented for a disk (`src/cli/diskFiles.ts`) and for a browser
 * (`opfs.ts`).
 */

import type { CheckpointFiles } from '../model/checkpoint/sourceFiles.ts';

/** File contents by name, in the order in which they are written. */
export type FolderFiles = ReadonlyMap<string, Uint8Array | string>;

/** A file system. Paths use "/" as separator. Folders are created when needed. Methods reject with InputError if a read or write fails. */
export interface FileSystem {
  /** True if the path is a file or a folder. */
  exists(path: string): Promise<boolean>;
  /** Names of the entries of a folder, in no particular order; empty if the folder does not exist. */
  list(folder: string): Promise<string[]>;
  /** Size of a file in bytes; undefined if the file does not exist. */
  size(path: string): Promise<number | undefined>;
  /** Reads a full file, or its bytes from `begin` to `end`; fewer bytes if the file ends earlier. */
  read(path: string, begin?: number, end?: number): Promise<Uint8Array>;
  /** Returns the SHA-256 of a file in lower-case hexadecimal. A large file is not loaded into memory at once. */
  sha256(path: string): Promise<string>;
  /** Replaces a file atomically. If the process ends during the call, the file has its complete new content or is unchanged. */
  write(path: string, content: string | Uint8Array): Promise<void>;
  /** Appends a text to a file, and creates the file if needed. A killed process can leave the text complete, in part or not at all. */
  append(path: string, content: string | Uint8Array): Promise<void>;
  /**
   * Writes a folder of these files atomically, and replaces an older folder of that name. If the file system cannot write folders
   * atomically, the last file is written once all others are complete. A killed process leaves the old folder, the new one, or the old one
   * as `.name.old` until `tidy` is called.
   */
  writeFolder(path: string, files: FolderFiles): Promise<void>;
  /** Renames a folder to a name that is not in use. */
  rename(from: string, to: string): Promise<void>;
  /** Deletes a folder with its content, if it exists. */
  remove(folder: string): Promise<void>;
  /**
   * Completes or removes what a killed process left unfinished in a folder and its subfolders. Nothing else may write to the folder
   * meanwhile.
   */
  tidy(folder: string): Promise<void>;
  /** Free space in bytes; undefined if it is unknown. */
  free(path: string): Promise<number | undefined>;
}

/** Reads the text of a file. */
export async function readFileText(files: FileSystem, path: string): Promise<string> {
  return new TextDecoder().decode(await files.read(path));
}

/** Returns the first of the paths `path`-1, `path`-2, ... that is not in use. */
export async function freeName(files: FileSystem, path: string): Promise<string> {
  for (let n = 1; ; n++) if (!(await files.exists(`${path}-${n}`))) return `${path}-${n}`;
}

/** Returns a folder as the source of files from which a model is opened. */
export const filesIn = (files: FileSystem, folder: string): CheckpointFiles => ({
  size: (name) => files.size(`${folder}/${name}`),
  read: (name, begin, end) => files.read(`${folder}/${name}`, begin, end),
  names: () => files.list(folder),
});
