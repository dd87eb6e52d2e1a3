/**
 * One run a folder: `.NAME.lock` beside the folder NAME says which process has it, for as long as it does. A killed process leaves its
 * lock behind; the next one finds that process gone, and takes the lock over.
 */

import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { InputError } from '../../errors.ts';

/** What a lock file holds, as JSON. */
interface Holder {
  pid: number;
  host: string;
  /** When it was locked, for people. */
  since: string;
  /** Boot and start time of the process, which tell it from a later one with its number; absent if there is no /proc. */
  started?: string;
  /** Tells this lock from every other. */
  nonce: string;
}

export interface RunLock {
  /** False once the lock was deleted or replaced. */
  isHeld(): boolean;
  release(): void;
}

/** Throws InputError if another process holds the folder (it names the process and since when), or if no lock can be written. */
export function lockFolder(folder: string): RunLock {
  const path = join(dirname(resolve(folder)), `.${basename(resolve(folder))}.lock`);
  const started = startOf(process.pid);
  const [host, since, nonce] = [hostname(), new Date().toISOString(), randomBytes(6).toString('hex')];
  const mine: Holder = { pid: process.pid, host, since, ...(started !== undefined && { started }), nonce };
  const made = claimMakingFolders(path, mine, folder);
  clearDeadFiles(path);
  const isHeld = () => holderOf(path)?.nonce === nonce;
  const release = () => {
    process.off('exit', release);
    if (isHeld()) rmSync(path, { force: true });
    removeEmpty(dirname(path), made);
  };
  process.on('exit', release);
  return { isHeld, release };
}

/** Returns the outermost folder that had to be made. */
function claimMakingFolders(path: string, mine: Holder, folder: string): string | undefined {
  const whole = `${path}.${mine.nonce}.new`;
  let made: string | undefined;
  try {
    for (let attempt = 1; ; attempt++) {
      made = mkdirSync(dirname(path), { recursive: true }) ?? made;
      try {
        writeSynced(whole, JSON.stringify(mine));
        claim(path, whole, mine, folder);
        return made;
      } catch (error) {
        // Another process has removed the empty folder that it had made.
        if (codeOf(error) !== 'ENOENT' || attempt === 20) throw error;
      }
    }
  } catch (error) {
    if (error instanceof InputError || codeOf(error) === undefined) throw error;
    throw new InputError(`The run folder ${folder} cannot be locked: ${(error as Error).message}.`);
  } finally {
    if (existsSync(whole)) rmSync(whole);
  }
}

/**
 * Makes the lock `path` this process's. Of several that find a dead process's lock, one at a time may replace it: the one that has the
 * lock of that lock, whose name follows from it. It looks again before it does, since another may have been there before.
 */
function claim(path: string, whole: string, mine: Holder, folder: string): void {
  for (let attempt = 1; ; attempt++) {
    if (linked(whole, path)) return;
    const holder = holderOf(path);
    if (holder) {
      if (holder.host !== mine.host || isAlive(holder)) throw new InputError(heldSentence(folder, path, holder, mine));
      const succession = `${path}.${holder.nonce}`;
      claim(succession, whole, mine, folder);
      if (holderOf(path)?.nonce === holder.nonce) return renameSync(succession, path);
      rmSync(succession, { force: true });
    } else if (attempt === 100)
      throw new InputError(`${path} is no lock that webgrpo can read; delete it if no other run writes to ${folder}.`);
  }
}

/** True if `path` did not exist: it then is the file `whole`, never a part of it. */
function linked(whole: string, path: string): boolean {
  try {
    linkSync(whole, path);
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    if (codeOf(error) === 'ENOENT') throw error;
  }
  // A file system without hard links.
  try {
    writeFileSync(path, readFileSync(whole), { flag: 'wx' });
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
}

function heldSentence(folder: string, path: string, { pid, host, since }: Holder, mine: Holder): string {
  const who = `process ${pid} on ${host}, since ${since}`;
  if (host !== mine.host)
    return `${folder} is another run's: ${who}. Whether that one still runs cannot be seen from ${mine.host}; if it does not, delete ${path}.`;
  if (pid === mine.pid) return `${folder} is another run's in this process, since ${since}.`;
  return `${folder} is another run's: ${who}. Wait until it ends, stop it (kill ${pid}), or give this one another name (name=...).`;
}

/** Undefined if there is no such file, or none that this file has written. */
function holderOf(path: string): Holder | undefined {
  try {
    const { pid, host, since, started, nonce } = JSON.parse(readFileSync(path, 'utf8')) as Partial<Holder>;
    if (!Number.isInteger(pid) || pid! < 1 || typeof host !== 'string' || !/^[0-9a-f]{12}$/.test(String(nonce)))
      return undefined;
    return { pid: pid!, host, since: String(since), ...(started !== undefined && { started }), nonce: nonce! };
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
    return codeOf(error) === 'EPERM'; // somebody else's
  }
}

/** Linux: boot and start time of a process; 'ended' for one whose parent has not asked for its exit code yet. */
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

/** Processes killed while they took a lock leave files too. */
function clearDeadFiles(path: string): void {
  for (const name of readdirSync(dirname(path)).filter((file) => file.startsWith(`${basename(path)}.`))) {
    const holder = holderOf(join(dirname(path), name));
    if (holder?.host === hostname() && !isAlive(holder)) rmSync(join(dirname(path), name), { force: true });
  }
}

/** A run that is refused before it has written anything leaves no folder: not those that its lock needed. */
function removeEmpty(folder: string, outermost: string | undefined): void {
  if (outermost === undefined || !folder.startsWith(outermost)) return;
  try {
    rmdirSync(folder);
  } catch {
    return;
  }
  removeEmpty(dirname(folder), outermost);
}

function writeSynced(path: string, text: string): void {
  const file = openSync(path, 'w');
  try {
    writeSync(file, text);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException).code;
