/**
 * Runs in the browser's own files, under runs/<id>/: a run folder as the command line writes it, `run.json` (when it began, whether it is over)
 * `latest.jsonl` (every try of the newest step), and `changes.jsonl` (what was changed during the run). An active run holds a Web Lock of its name.
 */

import type { Metrics } from '../../src/grpo/metrics.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { readRollouts } from '../../src/runs/readLog.ts';
import { checkpointSteps } from '../../src/runs/checkpointFolder.ts';
import { type FileSystem, type FolderFiles, readFileText } from '../../src/runs/fileSystem.ts';
import { MANIFEST } from '../../src/runs/manifest.ts';
import { opfsFileSystem } from '../../src/runs/opfs.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { changesText, readChanges, type RunChange } from './runChanges.ts';
import { OLDER_BYTES, thinCheckpoints } from './thinning.ts';

const ROOT = 'runs';

/** The newest runs are kept, so many. */
const KEPT_RUNS = 10;

/** What was changed during a run. */
export const CHANGES = 'changes.jsonl';

/** run.json. */
export interface RunRecord {
  /** Milliseconds since 1970. */
  started: number;
  /** Where its model comes from, when not from the usual hub. */
  hub?: string | undefined;
  /** It has done all it was to do. */
  finished: boolean;
  /** Name given by the visitor. */
  name?: string;
  /** It came as files, and the rules among them were not let in yet. */
  foreign?: boolean;
  /** The run whose state after `step` it began with. */
  forkedFrom?: { id: string; step: number };
}

export interface SavedRun {
  id: string;
  record: RunRecord;
  /** Text of config.yaml. */
  config: string;
  history: Metrics[];
  /** Steps whose checkpoints are kept, whole or not, in order. */
  checkpoints: number[];
  /** The last of them; 0 = none. */
  step: number;
  /** Every try of the newest step. */
  tries: LoggedRollout[];
  /** Settings and rules that came in during the run. */
  changes: RunChange[];
}

/** Lets go of a run. */
export type Release = () => void;

/** OPFS, or IndexedDB where a window has none, as from `file://`; undefined if it keeps nothing at all. */
export async function openSavedRuns(): Promise<SavedRuns | undefined> {
  try {
    return new SavedRuns(opfsFileSystem(await navigator.storage.getDirectory()));
  } catch {
    const { indexedDbFileSystem } = await import('./indexedDb.ts');
    return indexedDbFileSystem('webgrpo').then(
      (files) => new SavedRuns(files),
      () => undefined,
    );
  }
}

export class SavedRuns {
  readonly files: FileSystem;

  constructor(files: FileSystem) {
    this.files = files;
  }

  /** The run that began last; undefined = none that can be read. */
  async newest(): Promise<SavedRun | undefined> {
    for (const { id } of await this.#records()) {
      const run = await this.read(id).catch(() => undefined); // a damaged one must not keep the page from starting another
      if (run) return run;
    }
    return undefined;
  }

  /** All that can be read, the newest first. */
  async all(): Promise<SavedRun[]> {
    const read = ({ id }: { id: string }) => this.read(id).catch(() => []);
    return (await Promise.all((await this.#records()).map(read))).flat();
  }

  async read(id: string): Promise<SavedRun> {
    const folder = RunFolder.open(this.files, this.path(id));
    const text = async (name: string) => readFileText(this.files, folder.file(name));
    const checkpoints = await checkpointSteps(this.files, folder.path);
    const history = await folder.metrics();
    const latest = folder.file('latest.jsonl');
    const tries = (await this.files.exists(latest))
      ? readRollouts(await readFileText(this.files, latest), latest)
      : await this.tries(id, history.at(-1)?.['training/global_step'] ?? 0);
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

  /** A name for a run that begins now, held by this tab. */
  async name(recipe: string, started: number): Promise<{ id: string; release: Release }> {
    const id = `${new Date(started).toISOString().replaceAll(/[:.]/g, '-')}-${recipe}`;
    const release = await claim(id);
    return release ? { id, release } : this.name(recipe, started + 1);
  }

  async writeRecord(id: string, record: RunRecord): Promise<void> {
    await this.files.write(`${this.path(id)}/run.json`, JSON.stringify(record));
  }

  async updateRecord(id: string, change: Partial<RunRecord>): Promise<void> {
    const record = JSON.parse(await readFileText(this.files, `${this.path(id)}/run.json`)) as RunRecord;
    await this.writeRecord(id, { ...record, ...change });
  }

  /** Tries of a step, as many as are kept. */
  async tries(id: string, step: number): Promise<LoggedRollout[]> {
    const file = `${this.path(id)}/rollouts/step-${step}.jsonl`;
    return (await this.files.exists(file)) ? readRollouts(await readFileText(this.files, file), file) : [];
  }

  /** A new run that continues from a checkpoint of another, which stays as it is. Throws InputError if there is no room. */
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
    const { hub, foreign } = from.record;
    const record: RunRecord = {
      started,
      hub,
      ...(foreign && { foreign }),
      finished: false,
      forkedFrom: { id: from.id, step },
    };
    return this.add(files, record, from.id.replace(/^[\dTZ-]+-/, ''));
  }

  /** A run of these files, by their paths in its folder. */
  async add(contents: FolderFiles, record: RunRecord, recipe: string): Promise<SavedRun> {
    const { id, release } = await this.name(recipe, Date.now());
    try {
      for (const [name, content] of contents) await this.files.write(`${this.path(id)}/${name}`, content);
      await this.writeRecord(id, record);
      await this.prune();
      return await this.read(id);
    } catch (error) {
      await this.discard(id).catch(() => {}); // the first error is the one to tell
      throw error;
    } finally {
      release();
    }
  }

  /** Every file of a run, by its path in the run's folder. */
  async contents(id: string): Promise<FolderFiles> {
    const found = new Map<string, Uint8Array>();
    const visit = async (folder: string): Promise<void> => {
      for (const name of await this.files.list(`${this.path(id)}/${folder}`.replace(/\/$/, ''))) {
        const path = `${folder}${name}`;
        if ((await this.files.size(`${this.path(id)}/${path}`)) === undefined) await visit(`${path}/`);
        else found.set(path, await this.files.read(`${this.path(id)}/${path}`));
      }
    };
    await visit('');
    return found;
  }

  /** A folder without folders, its manifest last. */
  async #folder(path: string): Promise<FolderFiles> {
    const names = (await this.files.list(path)).sort((a, b) => Number(a === MANIFEST) - Number(b === MANIFEST));
    const read = async (name: string) => [name, await this.files.read(`${path}/${name}`)] as const;
    return new Map(await Promise.all(names.map(read)));
  }

  async discard(id: string): Promise<void> {
    await this.files.remove(`${this.path(id)}/run.json`); // without it, what is left of the folder is no run
    await this.files.remove(this.path(id));
  }

  path(id: string): string {
    return `${ROOT}/${id}`;
  }

  /** Deletes all but the newest runs, and what is left of deleted ones, and some checkpoints of all but the newest; not of those that a tab trains. */
  async prune(keep = KEPT_RUNS): Promise<void> {
    const kept = (await this.#records()).slice(0, keep).map(({ id }) => id);
    for (const id of await this.files.list(ROOT)) {
      if (id === kept[0]) continue;
      const release = await claim(id);
      if (!release) continue;
      try {
        if (kept.includes(id)) await thinCheckpoints(RunFolder.open(this.files, this.path(id)), OLDER_BYTES);
        else await this.discard(id);
      } finally {
        release();
      }
    }
  }

  /** The newest first. */
  async #records(): Promise<{ id: string; started: number }[]> {
    const read = async (id: string) => {
      const text = await readFileText(this.files, `${this.path(id)}/run.json`).catch(() => '');
      return text === '' ? [] : [{ id, started: (JSON.parse(text) as RunRecord).started }];
    };
    const runs = (await Promise.all((await this.files.list(ROOT)).map(read))).flat();
    return runs.sort((a, b) => b.started - a.started);
  }
}

/** Takes a run for this tab, waiting so long for another to let go, or for ever; undefined = it did not. */
export function claim(id: string, waitMs = 0): Promise<Release | undefined> {
  const wait = waitMs === Infinity ? {} : { signal: AbortSignal.timeout(waitMs) };
  const options = waitMs === 0 ? { ifAvailable: true } : wait;
  return new Promise((resolve) => {
    const hold = (lock: Lock | null) =>
      lock ? new Promise<void>((release) => resolve(() => release())) : resolve(undefined);
    // A page from file:// may have no locks; its tabs share no run that is worth the wait.
    const refused = (error: unknown) =>
      resolve((error as Error).name === 'SecurityError' ? () => undefined : undefined);
    navigator.locks.request(`webgrpo run ${id}`, options, hold).catch(refused);
  });
}
