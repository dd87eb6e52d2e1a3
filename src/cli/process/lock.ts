/**
 * Locks a run folder for one process. `.NAME.lock` next to the folder NAME names that process. A killed process leaves its lock behind; the
 * next process detects that and takes the lock over.
 */

import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { InputError } from '../../errors.ts';

/** Content of a lock file, as JSON. */
interface Holder {
  pid: number;
  host: string;
  /** Time of the lock, for people to read. */
  since: string;
  /** Boot and start time of the process, because ids of processes are reused. Undefined without /proc. */
  started?: string;
  /** Random text that distinguishes this lock from every other. */
  nonce: string;
}

export interface RunLock {
  /** False once the lock was deleted or replaced. */
  isHeld(): boolean;
  release(): void;
}

/** Locks a folder. Throws InputError if another process holds it (naming the process and the time), or if no lock can be written. */
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
 * Writes the lock `path` for this process. To replace a dead process's lock, a process must first lock that lock. It then checks again,
 * because another process can have replaced the lock already.
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
      // A lock is empty until its holder has written it.
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

/** Returns the holder in a lock file. Undefined if the file is missing or was not written by this module. */
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

/** Returns boot and start time of a process on Linux; 'ended' for a process whose exit code its parent has not read yet. */
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
 * Creates a folder and those around it. Returns the outermost new one. Node's own recursive mkdir never returns in /proc
 * (Node 20).
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

/** Removes the folders that the lock needed, so that a run that is refused before it wrote anything leaves none behind. */
function removeEmpty(folder: string, outermost: string | undefined): void {
  try {
    for (; outermost !== undefined && folder.startsWith(outermost); folder = dirname(folder)) rmdirSync(folder);
  } catch {
    // One of the folders is not empty.
  }
}

const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException).code;
