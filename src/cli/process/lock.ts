/**
 * Locks a run folder for one process. For a folder NAME the lock is the file `.NAME.lock` next to it, which contains the id of the process.
 * A killed process leaves its lock file behind; the next process sees that the lock's process has ended, and replaces the lock.
 */

import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { InputError } from '../../errors.ts';

/** Content of a lock file (JSON): the process that holds the lock. */
interface Holder {
  pid: number;
  host: string;
  /** Time at which the folder was locked. Only shown to users. */
  since: string;
  /** Boot id of the machine and start time of the process, because process ids are reused. Undefined without /proc. */
  started?: string;
  /** Random text that distinguishes this lock from every other. */
  nonce: string;
}

export interface RunLock {
  /** Returns false once the lock file was deleted or replaced. */
  isHeld(): boolean;
  release(): void;
}

/**
 * Locks a folder. Throws InputError if another process holds the lock (the message says which, and since when), or if the lock file cannot
 * be written.
 */
export function lockFolder(folder: string): RunLock {
  const path = join(dirname(resolve(folder)), `.${basename(resolve(folder))}.lock`);
  const started = startOf(process.pid);
  const [host, since, nonce] = [hostname(), new Date().toISOString(), randomBytes(6).toString('hex')];
  const mine: Holder = { pid: process.pid, host, since, ...(started !== undefined && { started }), nonce };
  let made: string | undefined;
  try {
    made = makeFolders(dirname(path));
    claim(path, mine, folder);
  } catch (error) {
    if (error instanceof InputError || codeOf(error) === undefined) throw error;
    const [reason] = (error as Error).message.split(', ');
    throw new InputError(
      `The run folder ${folder} cannot be written (${reason}). Set trainer.defaultLocalDir to a folder that can be.`,
    );
  }
  const isHeld = () => holderOf(path)?.nonce === nonce;
  const release = () => {
    process.off('exit', release);
    if (isHeld()) rmSync(path, { force: true });
    removeEmpty(dirname(path), made);
  };
  process.on('exit', release);
  return { isHeld, release };
}

/**
 * Creates the lock file `path` for this process. To replace the lock of a dead process, first locks that lock file in the same way, then
 * checks that no other process has replaced it in the meantime.
 */
function claim(path: string, mine: Holder, folder: string): void {
  for (let attempt = 1; ; attempt++) {
    try {
      return writeFileSync(path, JSON.stringify(mine), { flag: 'wx', flush: true });
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error;
    }
    const holder = holderOf(path);
    if (holder) {
      if (holder.host !== mine.host || isAlive(holder)) throw new InputError(heldSentence(folder, path, holder, mine));
      const succession = `${path}.${holder.nonce}`;
      claim(succession, mine, folder);
      if (holderOf(path)?.nonce === holder.nonce) return renameSync(succession, path);
      rmSync(succession, { force: true });
    } else if (attempt === 100)
      // Not an error at the first attempts: a lock file is empty between its creation and the write of its content.
      throw new InputError(`${path} is not a lock file of webgrpo. Delete it if no other run writes to ${folder}.`);
  }
}

function heldSentence(folder: string, path: string, { pid, host, since }: Holder, mine: Holder): string {
  const who = `process ${pid} on ${host}, since ${since}`;
  if (host !== mine.host)
    return `${folder} is in use by another run: ${who}. Whether that one still runs cannot be seen from ${mine.host}; if it does not, delete ${path}.`;
  if (pid === mine.pid) return `${folder} is in use by another run of this process, since ${since}.`;
  return `${folder} is in use by another run: ${who}. Wait until it ends, stop it (kill ${pid}), or give this one another name (name=...).`;
}

/** Returns the process that a lock file names. Undefined if the file is missing, or if this module did not write it. */
function holderOf(path: string): Holder | undefined {
  try {
    const holder = JSON.parse(readFileSync(path, 'utf8')) as Holder;
    return holder.pid > 0 && /^[0-9a-f]{12}$/.test(holder.nonce) ? holder : undefined;
  } catch {
    return undefined;
  }
}

function isAlive({ pid, started }: Holder): boolean {
  const now = startOf(pid);
  if (started !== undefined && now !== undefined) return now === started;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) === 'EPERM'; // the process exists, but belongs to another user
  }
}

/** Returns boot id and start time of a process on Linux; 'ended' for a zombie process; undefined without /proc. */
function startOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state, ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (state === 'Z' || state === 'X') return 'ended';
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${fields[18]}`;
  } catch {
    return undefined;
  }
}

/**
 * Creates a folder and its missing parents. Returns the outermost folder that it created. Not mkdir's `recursive`, which never returns for
 * a path in /proc (Node 20).
 */
function makeFolders(folder: string): string | undefined {
  if (existsSync(folder)) return undefined;
  const made = makeFolders(dirname(folder));
  try {
    mkdirSync(folder);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error; // another process was faster
  }
  return made ?? folder;
}

/**
 * Removes the empty folders that were created for the lock file, so that a run that fails before its first write leaves no folder behind.
 */
function removeEmpty(folder: string, outermost: string | undefined): void {
  try {
    for (; outermost !== undefined && folder.startsWith(outermost); folder = dirname(folder)) rmdirSync(folder);
  } catch {
    // A folder that is not empty stays, and so do its parents.
  }
}

const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException).code;
