/** File operations that stop, or fail once, at operation k: as if the process had died there, or the disk had returned an error. */

import * as promises from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import type { FsOperations } from '../../src/cli/diskFiles.ts';

/**
 * `none` = not done, `torn` = half done, `done` = done; after these three every operation fails. Otherwise the code of an error that is
 * returned once.
 */
export type Fault = 'none' | 'torn' | 'done' | 'ENOSPC' | 'EIO' | 'EROFS';
export const STOPS: readonly Fault[] = ['none', 'torn', 'done'];

/** The simulated death of the process. Every later file operation throws the same error. */
export class Died extends Error {}

export class FaultyFs {
  /** Operations that have changed the disk, in order. */
  readonly log: string[] = [];
  readonly #at: number;
  readonly #fault: Fault;
  #dead = false;

  /** @param at number of the operation, from 0; Infinity = no fault */
  constructor(at = Infinity, fault: Fault = 'none') {
    this.#at = at;
    this.#fault = fault;
  }

  get operations(): FsOperations {
    const read =
      <A extends unknown[], T>(run: (...args: A) => Promise<T>) =>
      async (...args: A): Promise<T> => {
        if (this.#dead) throw new Died();
        return run(...args);
      };
    const change = (
      name: string,
      run: (...args: never[]) => Promise<unknown>,
      torn?: (path: string) => Promise<unknown>,
    ) =>
      ((path: string, ...rest: never[]) =>
        this.#change(
          `${name} ${path}`,
          () => run(...([path, ...rest] as never[])),
          () => torn?.(path),
        )) as never;
    return {
      ...promises,
      stat: read(promises.stat as never) as never,
      readdir: read(promises.readdir as never) as never,
      readFile: read(promises.readFile as never) as never,
      statfs: promises.statfs,
      mkdir: change('mkdir', promises.mkdir),
      rename: change('rename', promises.rename),
      rm: change('rm', promises.rm, removeHalf),
      open: (async (path: string, flags = 'r') => {
        if (flags === 'r') return this.#handle(await read(promises.open)(path, flags), path);
        let file: FileHandle | undefined;
        await this.#change(`open ${path}`, async () => (file = await promises.open(path, flags)));
        return this.#handle(file!, path);
      }) as never,
    };
  }

  #handle(file: FileHandle, path: string): FileHandle {
    const half = (content: string | Uint8Array) => Buffer.from(content as string).subarray(0, content.length >> 1);
    return {
      read: file.read.bind(file),
      close: () => file.close(),
      writeFile: (content: string | Uint8Array) =>
        this.#change(
          `write ${path}`,
          () => file.writeFile(content),
          () => file.writeFile(half(content)),
        ),
      sync: () => this.#change(`sync ${path}`, () => file.sync()),
    } as unknown as FileHandle;
  }

  async #change<T>(name: string, run: () => Promise<T>, torn?: () => unknown): Promise<T> {
    if (this.#dead) throw new Died();
    const k = this.log.push(name) - 1;
    if (k !== this.#at) return run();
    if (!STOPS.includes(this.#fault)) {
      if (this.#fault === 'ENOSPC') await torn?.(); // the part that fitted stays on the disk
      throw Object.assign(new Error(this.#fault), { code: this.#fault });
    }
    if (this.#fault === 'torn') await torn?.();
    if (this.#fault === 'done') await run();
    this.#dead = true;
    throw new Died();
  }
}

async function removeHalf(path: string): Promise<void> {
  const names = await promises.readdir(path).catch(() => []);
  for (const name of names.slice(0, names.length >> 1)) await promises.rm(join(path, name), { recursive: true });
}
