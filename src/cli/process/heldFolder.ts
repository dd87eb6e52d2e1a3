/** Protects the folder of a run in progress: locks it against other runs, and checks for a folder that was renamed or deleted meanwhile. */

import { existsSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { FolderGoneError } from '../../errors.ts';
import type { FileSystem } from '../../runs/fileSystem.ts';
import { disk } from '../files.ts';
import { exitOnSignals } from './interrupt.ts';
import { lockFolder, type RunLock } from './lock.ts';

/** A locked run folder: other runs cannot write to it. The lock is released at the end of the block that declares it with `using`. */
interface HeldFolder extends Disposable {
  /** File system whose writes reject with FolderGoneError once the run folder was renamed, deleted or replaced. */
  files: FileSystem;
}

/** Locks a run folder. Throws InputError if another run holds it. */
export function holdFolder(folder: string): HeldFolder {
  exitOnSignals(); // a signal must release the lock
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

/** Returns the absolute path of the folder and, if it is a symbolic link, of its target. */
function namesOf(folder: string): Set<string> {
  const real = (path: string) => (existsSync(path) ? realpathSync(path) : resolve(path));
  return new Set([join(real(dirname(resolve(folder))), basename(resolve(folder))), real(folder)]);
}

/** Returns a file system for one run folder. Before each write it checks that the folder and its lock still exist. */
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
