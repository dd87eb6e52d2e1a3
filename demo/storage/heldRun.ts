/** A run while this tab trains it: writes its folder and manages its space. */

import { InputError } from '../../src/errors.ts';
import { isDomError } from '../../src/model/checkpoint/opfs.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Checkpoint } from '../../src/grpo/types.ts';
import { changedKeys, trainsOtherwise } from '../../src/extensions/yaml/index.ts';
import { loadTrainerCheckpoint, newestCheckpoint, writeCheckpoint } from '../../src/runs/checkpointFolder.ts';
import type { FolderFiles } from '../../src/runs/fileSystem.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { claim, type Release, type RunRecord, type SavedRun, type SavedRuns } from './savedRuns.ts';
import { NEWEST_BYTES, thinCheckpoints } from './thinning.ts';

/** Milliseconds to wait for a run. A reloaded page can request it before the old page has released it. */
const CLAIM_MS = 3000;

/** Bytes to reserve for a checkpoint's manifest and for the names of its files. */
const MANIFEST_BYTES = 4096;

/** Called with the error if something could not be saved, and with undefined after each saved checkpoint. */
type OnProblem = (problem: Error | undefined) => void;

export interface ReopenedRun {
  held: HeldRun;
  saved: SavedRun;
  /** Checkpoint to resume from; undefined = the run has no checkpoint, and restarts. */
  checkpoint: Checkpoint | undefined;
  /** Notes about damaged checkpoints. */
  notes: string[];
}

/** A saved run that this tab holds. */
export class HeldRun {
  /** Called after each checkpoint that was written. */
  onWritten: () => void = () => {};
  onProblem: OnProblem = () => {};
  readonly id: string;
  readonly folder: RunFolder;
  readonly #runs: SavedRuns;
  readonly #release: Release;

  private constructor(runs: SavedRuns, id: string, release: Release) {
    [this.#runs, this.id, this.#release] = [runs, id, release];
    this.folder = RunFolder.open(runs.files, runs.path(id));
  }

  /** Creates a new run. Throws InputError without enough space. @param where server of its model, and name of the GPU */
  static async begin(
    runs: SavedRuns,
    config: TrainConfig,
    where: Pick<RunRecord, 'hub' | 'adapter'>,
  ): Promise<HeldRun> {
    const record = { ...where, started: Date.now(), finished: false };
    const { id, release } = await runs.name(config.name, record.started);
    try {
      await RunFolder.create(runs.files, runs.path(id), config);
      await runs.writeRecord(id, record);
      await runs.prune();
      return new HeldRun(runs, id, release);
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Resumes a run in its current state. Throws InputError if another tab holds it, or if none of its checkpoints is intact. */
  static async resume(runs: SavedRuns, id: string, config: TrainConfig): Promise<ReopenedRun> {
    const release = await claim(id, CLAIM_MS);
    if (!release) throw new InputError('This run is open in another tab. Close that tab and try again.');
    try {
      const { files } = runs;
      const [path, saved, notes] = [runs.path(id), await runs.read(id), [] as string[]];
      await files.tidy(path); // completes or removes a partly written checkpoint, which would count as damaged
      if (saved.record.finished) await runs.updateRecord(id, { finished: false });
      const folder = await newestCheckpoint(files, path, 'trainer', (note) => notes.push(note));
      const checkpoint = folder === undefined ? undefined : await loadTrainerCheckpoint(files, folder);
      const held = new HeldRun(runs, id, release);
      const changed = changedKeys(saved.config, config);
      if (changed.length > 0) await held.folder.keepConfig();
      if (trainsOtherwise(changed, config)) await runs.updateRecord(id, { changedAfter: checkpoint?.state.step });
      return { held, saved, checkpoint, notes };
    } catch (error) {
      release();
      throw error;
    }
  }

  /**
   * Writes a checkpoint, and deletes other checkpoints of the run that take too much space. If the browser has too little space, deletes
   * other runs, oldest first.
   */
  async save(step: number, contents: FolderFiles): Promise<void> {
    const { files } = this.folder;
    const needed = Array.from(contents.values(), ({ length }) => length).reduce((a, b) => a + b, 0) + MANIFEST_BYTES;
    await this.#makeSpace(needed);
    const write = () => writeCheckpoint(files, this.folder.checkpoint(step), contents);
    await write().catch(async (error: unknown) => {
      if (!(error instanceof InputError) || !isDomError(error.cause, 'QuotaExceededError')) throw error;
      await this.#runs.makeSpace(this.id, needed); // browsers report more space than they provide
      await write();
    });
    this.onProblem(undefined);
    await thinCheckpoints(this.folder, NEWEST_BYTES);
    this.onWritten();
  }

  /** Releases the run. Called once everything is written. @param finished true if the run has completed all its steps */
  async end(finished: boolean): Promise<void> {
    if (finished) await this.#runs.updateRecord(this.id, { finished }).catch(this.onProblem);
    this.#release();
  }

  /** Throws InputError if even deleting other runs does not free enough space. */
  async #makeSpace(needed: number): Promise<void> {
    const { files, path } = this.folder;
    const free = async () => (await files.free(path)) ?? Infinity;
    const missing = needed - (await free());
    if (missing > 0) await this.#runs.makeSpace(this.id, missing);
    const left = await free();
    if (needed <= left) return;
    const mib = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
    throw new InputError(
      `The checkpoint needs ${mib(needed)} (${needed} bytes), but the browser has ${mib(left)} (${left} bytes) left for this site. ` +
        "The run continues unsaved until there is space. Free disk space or clear this site's data.",
    );
  }
}
