/**
 * A folder of the browser's files whose operations stop, or fail once, at operation k, as if the tab had been closed there. Runs in a page.
 */

/**
 * Fault at operation k. `before`: the operation is not done. `torn`: only half of a folder is deleted. `after`: the operation is done.
 * After these three every later operation fails. `full`: the browser once refuses to write.
 */
export type Fault = 'before' | 'torn' | 'after' | 'full';

/** The simulated closing of the tab. Every later file operation throws the same error. */
export class Closed extends Error {}

export class FaultyRoot {
  /** Number of operations so far that changed files. */
  readonly log: string[] = [];
  readonly #at: number;
  readonly #fault: Fault;
  readonly #writers = new Set<FileSystemWritableFileStream>();
  #closed = false;

  /** @param at number of the operation, from 0; Infinity = no fault */
  constructor(at = Infinity, fault: Fault = 'before') {
    [this.#at, this.#fault] = [at, fault];
  }

  folder(real: FileSystemDirectoryHandle): FileSystemDirectoryHandle {
    const made = (create = false) => (create ? 'make' : undefined);
    return {
      keys: () => real.keys(),
      getDirectoryHandle: async (name: string, options?: FileSystemGetDirectoryOptions) =>
        this.folder(await this.#do(made(options?.create), name, () => real.getDirectoryHandle(name, options))),
      getFileHandle: async (name: string, options?: FileSystemGetFileOptions) =>
        this.#file(await this.#do(made(options?.create), name, () => real.getFileHandle(name, options))),
      removeEntry: (name: string, options?: FileSystemRemoveOptions) =>
        this.#do(
          'remove',
          name,
          () => real.removeEntry(name, options),
          () => removeHalf(real, name),
        ),
    } as unknown as FileSystemDirectoryHandle;
  }

  /** Does what a closed tab does to files that are being written. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#writers].map((writer) => writer.abort().catch(() => {})));
  }

  #file(real: FileSystemFileHandle): FileSystemFileHandle {
    return {
      getFile: () => this.#do(undefined, real.name, () => real.getFile()),
      createWritable: async (options?: FileSystemCreateWritableOptions) => {
        const writer = await this.#do('open', real.name, () => real.createWritable(options));
        this.#writers.add(writer);
        return {
          seek: (position: number) => this.#do(undefined, real.name, () => writer.seek(position)),
          write: (data: FileSystemWriteChunkType) => this.#do('write', real.name, () => writer.write(data)),
          close: () => this.#do('close', real.name, () => writer.close()),
          abort: () => writer.abort(),
        };
      },
    } as unknown as FileSystemFileHandle;
  }

  /** @param what name of the operation; undefined = it changes no file and is not counted */
  async #do<T>(what: string | undefined, name: string, run: () => Promise<T>, torn?: () => Promise<void>): Promise<T> {
    if (this.#closed) throw new Closed();
    if (what === undefined || this.log.push(`${what} ${name}`) - 1 !== this.#at) return run();
    if (this.#fault === 'full') throw new DOMException('no room', 'QuotaExceededError');
    if (this.#fault === 'torn') await torn?.();
    if (this.#fault === 'after') await run();
    await this.close();
    throw new Closed();
  }
}

async function removeHalf(folder: FileSystemDirectoryHandle, name: string): Promise<void> {
  const inside = await folder.getDirectoryHandle(name).catch(() => undefined);
  const names: string[] = [];
  for await (const entry of inside?.keys() ?? []) names.push(entry);
  for (const entry of names.slice(0, names.length >> 1)) await inside!.removeEntry(entry, { recursive: true });
}
