/** Reads and writes files that users name. Every error says what the user can do. */

import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { InputError } from '../errors.ts';
import type { CheckpointFiles } from '../model/checkpoint/sourceFiles.ts';
import { filesIn, type FileSystem } from '../runs/fileSystem.ts';
import { diskFiles } from './diskFiles.ts';

/** The local disk, as the `FileSystem` of run folders. */
export const disk: FileSystem = diskFiles();

/** Writes a file atomically: writes a temporary file, syncs it and renames it. Creates missing folders. Throws InputError. */
export const writeWhole = (path: string, content: string | Uint8Array): Promise<void> => disk.write(path, content);

/** Returns the bytes of a file. Throws InputError if it cannot be read. */
export const readBytes = (path: string): Promise<Uint8Array> => disk.read(shippedPath(path));

/**
 * Returns `path` if it exists; otherwise, for configs/ and checkpoints/, the same path inside this package if that exists. Shipped recipes
 * name their models relative to the package, so the installed command finds them from any working folder. A leading "~" is the user's home
 * folder.
 */
export function shippedPath(given: string): string {
  const path = given.replace(/^~(?=[\\/])/, homedir);
  if (existsSync(path) || !/^(configs|checkpoints)[\\/]/.test(path)) return path;
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json')) && folder !== dirname(folder)) folder = dirname(folder);
  const shipped = join(folder, path);
  return existsSync(shipped) ? shipped : path;
}

/** Returns the text of a UTF-8 file. Throws InputError. */
export async function readText(path: string): Promise<string> {
  const bytes = await readBytes(path);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    const [kind, remedy] = FORMATS.find(([, , magic]) => magic.every((byte, i) => bytes[i] === byte)) ?? [];
    if (kind === undefined) throw new InputError(`${path} is not UTF-8 text. Save it as UTF-8.`);
    throw new InputError(`${path} is ${kind}, not UTF-8 text. ${remedy}`);
  }
}

const AS_LINES =
  'Write its rows as JSON, one object per line: pandas does it by to_json(path, orient="records", lines=True).';

/** Formats that users often give instead of text: what the error says about them, and the first bytes by which they are recognised. */
const FORMATS: readonly (readonly [kind: string, remedy: string, magic: readonly number[]])[] = [
  ['a Parquet file', AS_LINES, [0x50, 0x41, 0x52, 0x31]],
  ['an Arrow file', AS_LINES, [0x41, 0x52, 0x52, 0x4f, 0x57, 0x31]],
  ['compressed by gzip', 'Decompress it, for example by gunzip.', [0x1f, 0x8b]],
  ['compressed by zstd', 'Decompress it, for example by unzstd.', [0x28, 0xb5, 0x2f, 0xfd]],
  ['a ZIP archive or a spreadsheet', 'Unpack it, or save it as text.', [0x50, 0x4b, 3, 4]],
  ['UTF-16 text', 'Save it as UTF-8.', [0xff, 0xfe]],
  ['UTF-16 text', 'Save it as UTF-8.', [0xfe, 0xff]],
];

/** Returns the value of a JSON file. Throws InputError if the file is missing, is not UTF-8 text, or is not JSON. */
export async function readJsonFile(path: string, parse: (text: string) => unknown = JSON.parse): Promise<unknown> {
  const text = await readText(path);
  try {
    return parse(text);
  } catch (error) {
    throw new InputError(`${path} is not JSON: ${(error as Error).message}.`);
  }
}

/** Returns the files of a checkpoint folder, which can be read in parts. */
export const folderFiles = (folder: string): CheckpointFiles => filesIn(disk, folder);

/** Returns a GGUF file that can be read in parts. Its errors contain the path. */
export const ggufFile = (path: string): CheckpointFiles => ({
  gguf: path,
  size: (name) => disk.size(name),
  read: (name, begin, end) => disk.read(name, begin, end),
});
