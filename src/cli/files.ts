/** Files by the names that users give, read with errors they can act on. */

import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { InputError } from '../errors.ts';
import type { CheckpointFiles } from '../model/checkpoint/sourceFiles.ts';
import { filesIn, type FileSystem } from '../runs/fileSystem.ts';
import { diskFiles } from './diskFiles.ts';

/** The disk, as run folders are written to it. */
export const disk: FileSystem = diskFiles();

/** Whole content or none: written beside, synced, renamed. Folders are made. Throws InputError. */
export const writeWhole = (path: string, content: string | Uint8Array): Promise<void> => disk.write(path, content);

/** Bytes of a file. Throws InputError when it cannot be read. */
export const readBytes = (path: string): Promise<Uint8Array> => disk.read(shippedPath(path));

/**
 * The path, or where there is nothing the same path in this package: its recipes name each other and their models from the package's root, and an
 * installed command line finds them from any folder.
 */
export function shippedPath(path: string): string {
  if (existsSync(path) || !/^(configs|checkpoints)[\\/]/.test(path)) return path;
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json')) && folder !== dirname(folder)) folder = dirname(folder);
  const shipped = join(folder, path);
  return existsSync(shipped) ? shipped : path;
}

export async function readText(path: string): Promise<string> {
  const bytes = await readBytes(path);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new InputError(`${path} is no text in UTF-8; save it in that encoding.`);
  }
}

/** Returns the parsed file. Throws InputError if it is missing, is no text in UTF-8, or is not JSON. */
export async function readJsonFile(path: string): Promise<unknown> {
  const text = await readText(path);
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new InputError(`${path} is not JSON: ${(error as Error).message}.`);
  }
}

/** The files of a folder, in parts. */
export const folderFiles = (folder: string): CheckpointFiles => filesIn(disk, folder);

/** A GGUF file in parts; errors name it by its path. */
export const ggufFile = (path: string): CheckpointFiles => ({
  gguf: path,
  size: (name) => disk.size(name),
  read: (name, begin, end) => disk.read(name, begin, end),
});
