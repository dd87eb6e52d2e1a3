/** Files and folders on a disk. Writes are atomic. Errors of the system become messages for users. */

import { createHash, randomBytes } from 'node:crypto';
import * as promises from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { InputError } from '../errors.ts';
import type { FileSystem, FolderFiles } from '../runs/fileSystem.ts';

/** The functions of node:fs/promises used here. The fault campaign (campaign/) passes functions that fail. */
export type FsOperations = Pick<
  typeof promises,
  'mkdir' | 'open' | 'readdir' | 'readFile' | 'rename' | 'rm' | 'stat' | 'statfs'
>;

/**
 * Names of old checkpoint folders (`.step-N.old`) that a killed process can leave behind, in addition to temporary names
 * (`.NAME.xxxxxxxx`). See `FileSystem.writeFolder`.
 */
const OLD = /^\.(step-\d+)\.old$/;
const TEMPORARY = /^\..+\.[0-9a-f]{8}$/;
/** Bytes that are read at once to hash a file. Larger buffers, one per small file, cause garbage collections. */
const HASHED_AT_ONCE = 256 << 10;

const temporaryFor = (path: string): string =>
  join(dirname(path), `.${basename(path)}.${randomBytes(4).toString('hex')}`);
const oldOf = (path: string): string => join(dirname(path), `.${basename(path)}.old`);

/** Returns a `FileSystem` for run folders on the local disk. */
export function diskFiles(fs: FsOperations = promises): FileSystem {
  const stat = async (path: string) => {
    try {
      return await fs.stat(path);
    } catch (error) {
      if (ABSENT.includes(codeOf(error))) return undefined;
      throw await diskError(fs, 'read', path, error);
    }
  };
  const exists = async (path: string) => (await stat(path)) !== undefined;

  /**
   * Runs `write`, which writes `path`. A system error becomes a message; if the disk is full, the message states `bytes`, the number
   * needed.
   */
  async function writing(path: string, bytes: number, write: () => Promise<void>): Promise<void> {
    try {
      await write();
    } catch (error) {
      throw await diskError(fs, 'write', path, error, bytes);
    }
  }

  async function writeSynced(path: string, content: string | Uint8Array, flags = 'w'): Promise<void> {
    const file = await fs.open(path, flags);
    try {
      await file.writeFile(content);
      await file.sync();
    } finally {
      await file.close();
    }
  }

  /** Syncs a folder, because otherwise a power failure can undo a rename in it. Not on Windows, which cannot sync folders. */
  async function syncFolder(path: string): Promise<void> {
    if (process.platform === 'win32') return;
    const folder = await fs.open(path, 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }

  /** Calls `make` with a temporary path, then `place` to move this path to its final name. If either fails, deletes the temporary path. */
  async function viaTemporary(
    path: string,
    make: (temporary: string) => Promise<void>,
    place: (temporary: string) => Promise<void>,
  ): Promise<void> {
    const temporary = temporaryFor(path);
    try {
      await make(temporary);
      await place(temporary);
    } catch (error) {
      // If the temporary path cannot be deleted, only `error` is reported. `tidy` deletes the path later.
      await fs.rm(temporary, { recursive: true, force: true }).catch(() => undefined);
      throw error;
    }
    await syncFolder(dirname(path));
  }

  async function replaceFolder(temporary: string, path: string): Promise<void> {
    const old = oldOf(path);
    const replaced = await exists(path);
    if (replaced) {
      await fs.rm(old, { recursive: true, force: true });
      await fs.rename(path, old);
    }
    try {
      await fs.rename(temporary, path);
    } catch (error) {
      if (replaced) await fs.rename(old, path).catch(() => undefined);
      throw error;
    }
    await fs.rm(old, { recursive: true, force: true });
  }

  async function tidy(folder: string): Promise<void> {
    if (!(await exists(folder))) return;
    await writing(folder, 0, async () => {
      for (const entry of await fs.readdir(folder, { withFileTypes: true })) {
        const path = join(folder, entry.name);
        const replaced = OLD.exec(entry.name)?.[1];
        if (replaced !== undefined && !(await exists(join(folder, replaced))))
          await fs.rename(path, join(folder, replaced));
        else if (replaced !== undefined || TEMPORARY.test(entry.name))
          await fs.rm(path, { recursive: true, force: true });
        else if (entry.isDirectory()) await tidy(path);
      }
    });
  }

  return {
    exists,
    tidy,
    list: async (folder) => {
      if (!(await exists(folder))) return [];
      try {
        return await fs.readdir(folder);
      } catch (error) {
        throw await diskError(fs, 'read', folder, error);
      }
    },
    size: async (path) => {
      const found = await stat(path);
      // Only regular files have a size here: reading a pipe could wait forever, and a folder has no bytes.
      if (found?.isFile() === false) throw new InputError(`${path} is not a regular file. Give another folder.`);
      return found?.size;
    },
    async read(path, begin, end) {
      try {
        // A device is refused, because reading one such as /dev/zero would never end.
        if ((await stat(path))?.isCharacterDevice()) throw new InputError(`Cannot read ${path}: it is a device.`);
        if (begin === undefined || end === undefined) return await fs.readFile(path);
        return await readRange(fs, path, begin, end);
      } catch (error) {
        throw await diskError(fs, 'read', path, error);
      }
    },
    async sha256(path) {
      try {
        return await hashFile(fs, path);
      } catch (error) {
        throw await diskError(fs, 'read', path, error);
      }
    },
    write: (path, content) =>
      writing(path, byteLength(content), async () => {
        await fs.mkdir(dirname(path), { recursive: true });
        await viaTemporary(
          path,
          (temporary) => writeSynced(temporary, content),
          (temporary) => fs.rename(temporary, path),
        );
      }),
    append: (path, content) =>
      writing(path, byteLength(content), async () => {
        await fs.mkdir(dirname(path), { recursive: true });
        await writeSynced(path, content, 'a');
      }),
    writeFolder: (path, files) =>
      writing(path, bytesOf(files), () =>
        viaTemporary(
          path,
          async (temporary) => {
            await fs.mkdir(temporary, { recursive: true });
            for (const [name, content] of files) {
              if (name.includes('/')) await fs.mkdir(dirname(join(temporary, name)), { recursive: true });
              await writeSynced(join(temporary, name), content);
            }
            await syncFolder(temporary);
          },
          (temporary) => replaceFolder(temporary, path),
        ),
      ),
    rename: (from, to) => writing(to, 0, () => fs.rename(from, to)),
    remove: (folder) =>
      writing(folder, 0, async () => {
        if (!(await exists(folder))) return;
        const temporary = temporaryFor(folder); // so that a partly deleted folder is never read as the complete one
        await fs.rename(folder, temporary);
        await fs.rm(temporary, { recursive: true, force: true });
      }),
    free: (path) => freeBytes(fs, path),
  };
}

const byteLength = (content: string | Uint8Array): number => Buffer.byteLength(content);
const bytesOf = (files: FolderFiles): number =>
  [...files.values()].reduce((total, content) => total + byteLength(content), 0);

async function readRange(fs: FsOperations, path: string, begin: number, end: number): Promise<Uint8Array> {
  const file = await fs.open(path);
  try {
    const { buffer, bytesRead } = await file.read(new Uint8Array(end - begin), 0, end - begin, begin);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

async function hashFile(fs: FsOperations, path: string): Promise<string> {
  const hash = createHash('sha256');
  const file = await fs.open(path);
  try {
    const piece = new Uint8Array(HASHED_AT_ONCE);
    for (;;) {
      const { bytesRead } = await file.read(piece, 0, piece.length);
      if (bytesRead === 0) return hash.digest('hex');
      hash.update(piece.subarray(0, bytesRead));
    }
  } finally {
    await file.close();
  }
}

/** Returns the free bytes of the disk that holds the path or its nearest existing folder; undefined if the disk does not report it. */
async function freeBytes(fs: FsOperations, path: string): Promise<number | undefined> {
  for (let at = path; ; at = dirname(at)) {
    try {
      const { bavail, bsize } = await fs.statfs(at);
      return bavail * bsize;
    } catch {
      if (at === dirname(at)) return undefined; // the system does not report it
    }
  }
}

/** System error codes for a file that does not exist. */
const ABSENT = ['ENOENT', 'ENOTDIR', 'ENAMETOOLONG'];

const FULL: Record<string, string> = { ENOSPC: 'the disk is full', EDQUOT: 'the quota of the disk is used up' };

const REASONS: Record<string, string> = {
  ENOENT: 'no such file',
  EISDIR: 'it is a folder',
  EACCES: 'no permission',
  EPERM: 'no permission',
  EROFS: 'the disk is read-only',
  ENOTDIR: 'a part of its path is a file, not a folder',
  EEXIST: 'there is a file in its place',
  ENOTEMPTY: 'something else is in its place',
  ENAMETOOLONG: 'the name is too long for this disk. Choose a shorter one',
  EMFILE: 'too many files are open (ulimit -n)',
  ENFILE: 'too many files are open on this machine',
  EIO: 'the disk reports an error. Look at the system log',
  EBUSY: 'another program holds it',
  EFBIG: 'this disk takes no file of that size',
  ELOOP: 'its path is a circle of links',
  EINVAL: 'this disk does not take such a name',
  ERR_INVALID_ARG_VALUE: 'there is a NUL character in its name. Remove it',
  ESTALE: 'the network disk has lost it',
  ...FULL,
};

const codeOf = (error: unknown): string => String((error as NodeJS.ErrnoException | undefined)?.code);

/** Returns the reason of a system error, as the end of a sentence; undefined for an error with an unknown code. */
export function reasonOf(error: unknown): string | undefined {
  const code = codeOf(error);
  return Object.hasOwn(REASONS, code) ? REASONS[code] : undefined;
}

/**
 * Converts a system error to an InputError. If the disk is full, its message states the bytes needed and the bytes that are free. Returns
 * an error with an unknown code unchanged.
 */
async function diskError(
  fs: FsOperations,
  verb: 'read' | 'write',
  path: string,
  error: unknown,
  bytes?: number,
): Promise<unknown> {
  const reason = reasonOf(error);
  if (reason === undefined) return error;
  const code = codeOf(error);
  const cause = { cause: error };
  if (Object.hasOwn(FULL, code)) {
    const free = await freeBytes(fs, path);
    const room = free === undefined ? '' : `, and ${free} are free`;
    return new InputError(
      `Cannot write ${path}: ${reason} (${bytes} bytes are needed${room}). What was saved before is intact. Free some space, then resume.`,
      cause,
    );
  }
  const beside = verb === 'read' && code === 'ENOENT' ? await neighbours(fs, path) : '';
  return new InputError(`Cannot ${verb} ${path}: ${reason}. ${beside}`.trim(), cause);
}

/** Returns a sentence with the names that the folder of `path` does have, to help with a mistyped name. */
async function neighbours(fs: FsOperations, path: string): Promise<string> {
  const folder = dirname(path);
  const names = await fs.readdir(folder).catch(() => undefined);
  if (!names) return `There is no folder ${folder}.`;
  const shown = names.filter((name) => !name.startsWith('.')).slice(0, 8);
  return shown.length > 0 ? `That folder has ${shown.join(', ')}.` : 'That folder is empty.';
}
