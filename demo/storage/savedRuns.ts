/**
 * Runs in the browser's own files, under runs/<id>/. Each is a run folder as the command line writes it, with three more files: `run.json`
 * (its start, and whether it has ended), `latest.jsonl` (every try of the newest step) and `changes.jsonl` (changes during the run). An
 * active run holds a Web Lock of its name.
 */

import type { Metrics } from '../../src/grpo/metrics.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { InputError } from '../../src/errors.ts';
import { readRollouts } from '../../src/runs/readLog.ts';
import { checkpointSteps } from '../../src/runs/checkpointFolder.ts';
import { type FileSystem, type FolderFiles, readFileText } from '../../src/runs/fileSystem.ts';
import { MANIFEST } from '../../src/runs/manifest.ts';
import { opfsFileSystem } from './opfs.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { changesText, readChanges } from './changesFile.ts';
import type { RunChange } from './runChanges.ts';
import { OLDER_BYTES, thinCheckpoints } from './thinning.ts';

const ROOT = 'runs';

/** Number of newest runs that are kept. The runs from which they were forked are kept too. */
const KEPT_RUNS = 10;

/** Milliseconds to wait before a run is deleted: the tab that has just ended the run releases it a moment later. */
const RELEASE_MS = 500;

/** File with the changes during the run. */
export const CHANGES = 'changes.jsonl';

/** Content of run.json. */
export interface RunRecord {
  /** Milliseconds since 1970. */
  started: number;
  /** Server from which the run's model was loaded; undefined = huggingface.co. */
  hub?: string | undefined;
  /** Name of the GPU that trains the run; undefined if the run was imported. */
  adapter?: string | undefined;
  /** True if the run has completed all its steps. */
  finished: boolean;
  /** Name given by the visitor. */
  name?: string;
  /** True if the run was imported, and the visitor has not yet permitted its rules. */
  foreign?: boolean;
  /** Last step before the settings of config.yaml, if earlier steps were trained with others. */
  changedAfter?: number | undefined;
  /** Run and step from whose state this run was started. */
  forkedFrom?: { id: string; step: number };
}

export interface SavedRun {
  id: string;
  record: RunRecord;
  /** Text of config.yaml. */
  config: string;
  history: Metrics[];
  /** Steps with a stored checkpoint, intact or not, in order. */
  checkpoints: number[];
  /** The last of `checkpoints`; 0 = none. */
  step: number;
  /** Every try of the newest step. */
  tries: LoggedRollout[];
  /** Settings and rules that were applied during the run. */
  changes: RunChange[];
}

/** A run without its contents. */
export type RunEntry = Pick<SavedRun, 'id' | 'record'>;

/** Releases a run. */
export type Release = () => void;

/**
 * Opens OPFS, or IndexedDB in windows without OPFS, as from `file://`, and in browsers whose pages cannot write there, such as Safari
 * before 26. Undefined if the window stores nothing at all.
 */
export async function openSavedRuns(): Promise<SavedRuns | undefined> {
  try {
    if (!('createWritable' in FileSystemFileHandle.prototype)) throw new Error('OPFS can only be read here.');
    return new SavedRuns(opfsFileSystem(await navigator.storage.getDirectory()));
  } catch {
    const { indexedDbFileSystem } = await import('./indexedDb.ts');
    return indexedDbFileSystem('webgrpo').then(
      (files) => new SavedRuns(files),
      () => undefined,
    );
  }
}

/** Reads, writes and deletes saved runs. */
export class SavedRuns {
  readonly files: FileSystem;
  /** Called with each run that is deleted because it is old or because space is needed. */
  onDeleted: (run: RunEntry) => void = () => {};

  constructor(files: FileSystem) {
    this.files = files;
  }

  /** Returns the run that started last; undefined = none can be read. */
  async newest(): Promise<SavedRun | undefined> {
    for (const { id } of await this.#entries()) {
      const run = await this.read(id).catch(() => undefined); // a damaged run must not prevent the page from starting another
      if (run) return run;
    }
    return undefined;
  }

  /** Returns all readable runs, newest first. */
  async all(): Promise<SavedRun[]> {
    const read = ({ id }: { id: string }) => this.read(id).catch(() => []);
    return (await Promise.all((await this.#entries()).map(read))).flat();
  }

  async read(id: string): Promise<SavedRun> {
    const folder = RunFolder.open(this.files, this.path(id));
    const text = async (name: string) => readFileText(this.files, folder.file(name));
    const checkpoints = await checkpointSteps(this.files, folder.path);
    const history = await folder.metrics();
    const latest = folder.file('latest.jsonl');
    const newest = (await this.files.exists(latest)) ? readRollouts(await text('latest.jsonl'), latest) : [];
    const last = history.at(-1)?.['training/global_step'] ?? 0;
    // A run that was resumed from an earlier step still has the tries of a step that it repeats.
    const tries = newest[0]?.step === last ? newest : await this.tries(id, last);
    return {
      id,
      record: JSON.parse(await text('run.json')) as RunRecord,
      config: await text('config.yaml'),
      history,
      checkpoints,
      step: checkpoints.at(-1) ?? 0,
      tries,
      changes: (await this.files.exists(folder.file(CHANGES))) ? readChanges(await text(CHANGES), CHANGES) : [],
    };
  }

  /** Creates a name for a new run, locked by this tab. */
  async name(recipe: string, started: number): Promise<{ id: string; release: Release }> {
    const id = `${new Date(started).toISOString().replaceAll(/[:.]/g, '-')}-${recipe}`;
    const release = await claim(id);
    return release ? { id, release } : this.name(recipe, started + 1);
  }

  /** Last pending change of each run's record. A browser refuses to delete a file that is being written. */
  readonly #newest = new Map<string, Promise<void>>();

  /** Changes a run's record after all earlier changes to that record. */
  #inTurn(id: string, work: () => Promise<void>): Promise<void> {
    const done = (this.#newest.get(id) ?? Promise.resolve()).catch(() => {}).then(work);
    this.#newest.set(id, done);
    return done;
  }

  writeRecord(id: string, record: RunRecord): Promise<void> {
    return this.#inTurn(id, () => this.files.write(`${this.path(id)}/run.json`, JSON.stringify(record)));
  }

  /** Changes the record of a run. Does nothing if the run was deleted meanwhile. */
  updateRecord(id: string, change: Partial<RunRecord>): Promise<void> {
    const file = `${this.path(id)}/run.json`;
    return this.#inTurn(id, async () => {
      if (!(await this.files.exists(file))) return;
      const record = JSON.parse(await readFileText(this.files, file)) as RunRecord;
      await this.files.write(file, JSON.stringify({ ...record, ...change }));
    });
  }

  /** Returns the stored tries of a step. */
  async tries(id: string, step: number): Promise<LoggedRollout[]> {
    const file = `${this.path(id)}/rollouts/step-${step}.jsonl`;
    return (await this.files.exists(file)) ? readRollouts(await readFileText(this.files, file), file) : [];
  }

  /** Creates a run that continues from a checkpoint of another, which stays unchanged. Throws InputError without enough space. */
  async fork(from: SavedRun, step: number): Promise<SavedRun> {
    const [parent, started] = [RunFolder.open(this.files, this.path(from.id)), Date.now()];
    const lines = from.history.filter((line) => line['training/global_step'] <= step);
    const files = new Map<string, string | Uint8Array>([
      ['config.yaml', from.config],
      ['metrics.jsonl', lines.map((line) => `${JSON.stringify(line)}\n`).join('')],
    ]);
    if (from.changes.length > 0) files.set(CHANGES, changesText(from.changes.filter((of) => of.step <= step)));
    for (const name of await this.files.list(parent.file('rollouts')))
      if (Number(/^(?:val-)?step-(\d+)\.jsonl$/.exec(name)?.[1] ?? Infinity) <= step)
        files.set(`rollouts/${name}`, await this.files.read(parent.file('rollouts', name)));
    for (const [name, content] of await this.#folder(parent.checkpoint(step)))
      files.set(`checkpoints/step-${step}/${name}`, content);
    const { hub, adapter, foreign, changedAfter } = from.record;
    const record: RunRecord = {
      started,
      ...{ hub, adapter },
      ...(foreign && { foreign }),
      ...(changedAfter !== undefined && { changedAfter: Math.min(changedAfter, step) }),
      finished: false,
      forkedFrom: { id: from.id, step },
    };
    return this.add(files, record, from.id.replace(/^[\dTZ-]+-/, ''));
  }

  /** Stores a run from files, given by their paths in its folder. */
  async add(contents: FolderFiles, record: RunRecord, recipe: string): Promise<SavedRun> {
    const { id, release } = await this.name(recipe, Date.now());
    try {
      for (const [name, content] of contents) await this.files.write(`${this.path(id)}/${name}`, content);
      await this.writeRecord(id, record);
      await this.prune();
      return await this.read(id);
    } catch (error) {
      await this.#remove(id).catch(() => {}); // report the first error
      throw error;
    } finally {
      release();
    }
  }

  /** Returns every file of a run, by its path in the run's folder. */
  async contents(id: string): Promise<FolderFiles> {
    const found = new Map<string, Uint8Array>();
    for (const path of (await this.#sizes(id)).keys())
      found.set(path, await this.files.read(`${this.path(id)}/${path}`));
    return found;
  }

  /** Returns the bytes of every file of a run, by its path in the run's folder. */
  async #sizes(id: string): Promise<Map<string, number>> {
    const found = new Map<string, number>();
    const visit = async (folder: string): Promise<void> => {
      for (const name of await this.files.list(`${this.path(id)}/${folder}`.replace(/\/$/, ''))) {
        const path = `${folder}${name}`;
        const size = await this.files.size(`${this.path(id)}/${path}`);
        if (size === undefined) await visit(`${path}/`);
        else found.set(path, size);
      }
    };
    await visit('');
    return found;
  }

  /** Returns the files of a folder without subfolders, its manifest last. */
  async #folder(path: string): Promise<FolderFiles> {
    const names = (await this.files.list(path)).sort((a, b) => Number(a === MANIFEST) - Number(b === MANIFEST));
    const read = async (name: string) => [name, await this.files.read(`${path}/${name}`)] as const;
    return new Map(await Promise.all(names.map(read)));
  }

  /** Deletes a run. Throws InputError if another tab holds it. */
  async discard(id: string): Promise<void> {
    const release = await claim(id, RELEASE_MS);
    if (!release) throw new InputError('This run is open in another tab. Close that tab, then delete the run.');
    await this.#remove(id).finally(release);
  }

  #remove(id: string): Promise<void> {
    return this.#inTurn(id, async () => {
      await this.files.remove(`${this.path(id)}/run.json`); // without it, the remaining files do not count as a run
      await this.files.remove(this.path(id));
    });
  }

  path(id: string): string {
    return `${ROOT}/${id}`;
  }

  /** Deletes old runs, what is left of deleted runs, and some checkpoints of all runs except the newest. Skips runs that a tab trains. */
  async prune(): Promise<void> {
    const runs = await this.#entries();
    const kept = runs.slice(0, KEPT_RUNS).flatMap(({ id, record }) => [id, record.forkedFrom?.id]);
    for (const id of await this.files.list(ROOT)) {
      if (id === kept[0]) continue;
      const release = await claim(id);
      if (!release) continue;
      try {
        if (kept.includes(id)) await thinCheckpoints(RunFolder.open(this.files, this.path(id)), OLDER_BYTES);
        else await this.#delete(id, runs);
      } finally {
        release();
      }
    }
  }

  /**
   * Deletes runs for the run `id`, oldest first, until that frees `bytes` bytes. Deletes none if all of them together are too small. Skips runs that a
   * tab trains, and the run from which `id` was forked.
   */
  async makeSpace(id: string, bytes: number): Promise<void> {
    const runs = await this.#entries();
    const parent = runs.find((run) => run.id === id)?.record.forkedFrom?.id;
    const claimed = new Map<string, Release>();
    let freed = 0;
    try {
      for (const other of runs.toReversed()) {
        const release = freed < bytes && other.id !== parent && (await claim(other.id));
        if (!release) continue;
        claimed.set(other.id, release);
        freed += [...(await this.#sizes(other.id)).values()].reduce((sum, size) => sum + size, 0);
      }
      if (freed >= bytes) for (const other of claimed.keys()) await this.#delete(other, runs);
    } finally {
      for (const release of claimed.values()) release();
    }
  }

  /** Deletes the run, and reports it if it is one of `runs`. */
  async #delete(id: string, runs: readonly RunEntry[]): Promise<void> {
    await this.#remove(id);
    const run = runs.find((run) => run.id === id);
    if (run) this.onDeleted(run);
  }

  /** Returns ids and records, newest first. */
  async #entries(): Promise<RunEntry[]> {
    const read = async (id: string) => {
      const text = await readFileText(this.files, `${this.path(id)}/run.json`).catch(() => '');
      return text === '' ? [] : [{ id, record: JSON.parse(text) as RunRecord }];
    };
    const runs = (await Promise.all((await this.files.list(ROOT)).map(read))).flat();
    return runs.sort((a, b) => b.record.started - a.record.started);
  }
}

/** Throws InputError if steps after `from` were trained with other settings than those of config.yaml. */
export function expectSameSettings({ record: { changedAfter = 0 } }: SavedRun, from: number): void {
  if (from >= changedAfter) return;
  throw new InputError(
    `The replay would start after step ${from}, but the steps up to ${changedAfter} were trained with other settings. Replay a step after a checkpoint that follows step ${changedAfter - 1}.`,
  );
}

/** Runs that this tab holds without Web Locks. */
const heldHere = new Set<string>();

/**
 * Claims a run for this tab. Waits `waitMs`, or without a limit, for another tab to release the run; undefined if that tab still holds the
 * run then, or if this tab does.
 */
export function claim(id: string, waitMs = 0): Promise<Release | undefined> {
  const wait = waitMs === Infinity ? {} : { signal: AbortSignal.timeout(waitMs) };
  const options = waitMs === 0 ? { ifAvailable: true } : wait;
  return new Promise((resolve) => {
    const hold = (lock: Lock | null) =>
      lock ? new Promise<void>((release) => resolve(() => release())) : resolve(undefined);
    // A page opened from file:// may not use Web Locks, and one over plain http has none. Their tabs have no common runs to lock.
    const refused = (error: unknown) => resolve((error as Error).name === 'SecurityError' ? claimHere(id) : undefined);
    if (navigator.locks) navigator.locks.request(`webgrpo run ${id}`, options, hold).catch(refused);
    else resolve(claimHere(id));
  });
}

function claimHere(id: string): Release | undefined {
  if (heldHere.has(id)) return undefined;
  heldHere.add(id);
  return () => void heldHere.delete(id);
}
