/** A run folder while a run writes to it: locked against every other run, and watched, since a folder can be taken away under its run. */

import { existsSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { FolderGoneError } from '../../errors.ts';
import type { FileSystem } from '../../runs/fileSystem.ts';
import { disk } from '../files.ts';
import { exitOnSignals } from './interrupt.ts';
import { lockFolder, type RunLock } from './lock.ts';

/** A run folder that no other process may write to, until the end of the block that declares it by `using`. */
interface HeldFolder extends Disposable {
  /** Its methods reject with FolderGoneError once the folder is renamed, deleted or replaced. */
  files: FileSystem;
}

/** Locks a run folder. Throws InputError if another run holds it. */
export function holdFolder(folder: string): HeldFolder {
  exitOnSignals(); // a signal lets go of the lock
  const locks: RunLock[] = [];
  const release = () => locks.forEach((lock) => lock.release());
  try {
    for (const name of namesOf(folder)) locks.push(lockFolder(name));
  } catch (error) {
    release();
    throw error;
  }
  return { files: watched(folder, () => locks.every((lock) => lock.isHeld())), [Symbol.dispose]: release };
}

/** The folder's name, and that of what it is a link to. */
function namesOf(folder: string): Set<string> {
  const real = (path: string) => (existsSync(path) ? realpathSync(path) : resolve(path));
  return new Set([join(real(dirname(resolve(folder))), basename(resolve(folder))), real(folder)]);
}

/** The disk, for writing to one run folder from its first file on. */
export function watched(folder: string, isHeld: () => boolean): FileSystem {
  let own: string | undefined;
  const identity = () => {
    const stat = statSync(folder, { bigint: true, throwIfNoEntry: false });
    return stat && `${stat.dev}:${stat.ino}`;
  };
  const isOwn = () => identity() === own && existsSync(`${folder}/config.yaml`);
  const watch =
    <A extends unknown[]>(change: (...args: A) => Promise<void>) =>
    async (...args: A): Promise<void> => {
      if (!isHeld() || (own !== undefined && !isOwn()))
        throw new FolderGoneError(
          `The run folder ${folder} was renamed, deleted or replaced during the run, so the run has stopped. Put the folder back and resume.`,
        );
      await change(...args);
      if (existsSync(`${folder}/config.yaml`)) own ??= identity();
    };
  return {
    ...disk,
    write: watch(disk.write),
    append: watch(disk.append),
    writeFolder: watch(disk.writeFolder),
    remove: watch(disk.remove),
    rename: (from, to) => (from === folder ? disk.rename(from, to) : watch(disk.rename)(from, to)),
  };
}
