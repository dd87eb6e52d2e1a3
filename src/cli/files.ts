/** Files, read with errors a user can act on and written so that a kill leaves nothing half-written. */

import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { InputError } from '../errors.ts';
import type { CheckpointFiles } from '../model/checkpoint/open.ts';

/** Bytes of a file. Throws InputError when it cannot be read. */
export async function readBytes(path: string): Promise<Uint8Array> {
  try {
    return await readFile(shippedPath(path));
  } catch (error) {
    throw new InputError(`Cannot read ${path}: ${reasonOf(error)}. ${await neighbours(path)}`.trim());
  }
}

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
  return new TextDecoder().decode(await readBytes(path));
}

/** Throws InputError where the file is absent or no JSON. */
export async function readJsonFile(path: string): Promise<unknown> {
  const text = await readText(path);
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new InputError(`${path} is not JSON: ${(error as Error).message}.`);
  }
}

/** The files of a folder, in parts. */
export function folderFiles(folder: string): CheckpointFiles {
  return {
    async size(name) {
      const path = join(folder, name);
      return existsSync(path) ? (await stat(path)).size : undefined;
    },
    async read(name, begin, end) {
      const file = await open(join(folder, name));
      try {
        const { buffer, bytesRead } = await file.read(new Uint8Array(end - begin), 0, end - begin, begin);
        return buffer.subarray(0, bytesRead);
      } finally {
        await file.close();
      }
    },
  };
}

/** Whole content or none: written beside, synced, renamed. Folders are made. */
export async function writeWhole(path: string, content: string | Uint8Array): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  const temporary = join(dirname(path), `.${basename(path)}.${randomBytes(4).toString('hex')}`);
  const file = await open(temporary, 'w');
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
}

/** A folder of files, all or none. Replaces an older folder of that name. */
export async function writeFolder(path: string, files: ReadonlyMap<string, Uint8Array | string>): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.${randomBytes(4).toString('hex')}`);
  await mkdir(temporary, { recursive: true });
  for (const [name, content] of files) await writeWhole(join(temporary, name), content);
  if (existsSync(path)) await rm(path, { recursive: true });
  await rename(temporary, path);
}

/** The other names in the folder, for a mistyped one. */
async function neighbours(path: string): Promise<string> {
  const folder = dirname(path);
  if (existsSync(path)) return '';
  if (!existsSync(folder)) return `There is no folder ${folder}.`;
  const names = (await readdir(folder)).filter((name) => !name.startsWith('.')).slice(0, 8);
  return names.length > 0 ? `That folder has ${names.join(', ')}.` : 'That folder is empty.';
}

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return { ENOENT: 'no such file', EISDIR: 'it is a folder', EACCES: 'no permission' }[code ?? ''] ?? message;
}
