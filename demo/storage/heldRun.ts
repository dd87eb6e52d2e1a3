/** A run while this tab trains it: its folder, and what becomes of the space that it takes. */

import { InputError } from '../../src/errors.ts';
import { isDomError } from '../../src/model/checkpoint/opfs.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Checkpoint } from '../../src/grpo/types.ts';
import { changedKeys } from '../../src/runs/configChanges.ts';
import { loadTrainerCheckpoint, newestCheckpoint, writeCheckpoint } from '../../src/runs/checkpointFolder.ts';
import type { FolderFiles } from '../../src/runs/fileSystem.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { claim, type Release, type SavedRun, type SavedRuns } from './savedRuns.ts';
import { NEWEST_BYTES, thinCheckpoints } from './thinning.ts';

/** A reloaded page may come before the old one has let go. */
const CLAIM_MS = 3000;

/** A manifest and its names. */
const MANIFEST_BYTES = 4096;

/** Called with why something could not be saved, and with undefined whenever a checkpoint was. */
type OnProblem = (problem: Error | undefined) => void;

export interface ReopenedRun {
  held: HeldRun;
  saved: SavedRun;
  /** Undefined = the run had none yet, and starts over. */
  checkpoint: Checkpoint | undefined;
  /** Which checkpoints were damaged. */
  notes: string[];
}

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

  /** A new run. Throws InputError if there is no space. @param hub where its model comes from, when not from the usual one */
  static async begin(runs: SavedRuns, config: TrainConfig, hub: string | undefined): Promise<HeldRun> {
    const record = { started: Date.now(), hub, finished: false };
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

  /** A resumed run, as it is by now. Throws InputError if another tab has it, or if it has checkpoints and none is intact. */
  static async resume(runs: SavedRuns, id: string, config: TrainConfig): Promise<ReopenedRun> {
    const release = await claim(id, CLAIM_MS);
    if (!release) throw new InputError('This run is open in another tab. Close that tab and try again.');
    try {
      const { files } = runs;
      const [path, saved, notes] = [runs.path(id), await runs.read(id), [] as string[]];
      await files.tidy(path); // a checkpoint that was being written is no damage
      if (saved.record.finished) await runs.updateRecord(id, { finished: false });
      const folder = await newestCheckpoint(files, path, 'trainer', (note) => notes.push(note));
      const checkpoint = folder === undefined ? undefined : await loadTrainerCheckpoint(files, folder);
      const held = new HeldRun(runs, id, release);
      if (changedKeys(saved.config, config).length > 0) await held.folder.keepConfig();
      return { held, saved, checkpoint, notes };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Writes a checkpoint, and deletes others that take too much space. If the browser has too little, earlier runs make way. */
  async save(step: number, contents: FolderFiles): Promise<void> {
    const { files } = this.folder;
    await this.#makeSpace(contents);
    const write = () => writeCheckpoint(files, this.folder.checkpoint(step), contents);
    await write().catch(async (error: unknown) => {
      if (!(error instanceof InputError) || !isDomError(error.cause, 'QuotaExceededError')) throw error;
      await this.#runs.prune(1); // browsers report more space than they give
      await write();
    });
    this.onProblem(undefined);
    await thinCheckpoints(this.folder, NEWEST_BYTES);
    this.onWritten();
  }

  /** Lets go of the run, once everything is written. */
  async end(finished: boolean): Promise<void> {
    if (finished) await this.#runs.updateRecord(this.id, { finished }).catch(this.onProblem);
    this.#release();
  }

  /** Throws InputError if even the earlier runs' space is not enough. */
  async #makeSpace(contents: FolderFiles): Promise<void> {
    const { files, path } = this.folder;
    const needed = Array.from(contents.values(), ({ length }) => length).reduce((a, b) => a + b, 0) + MANIFEST_BYTES;
    const free = async () => (await files.free(path)) ?? Infinity;
    if (needed > (await free())) await this.#runs.prune(1);
    const left = await free();
    if (needed <= left) return;
    const mib = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
    throw new InputError(
      `The checkpoint needs ${mib(needed)} (${needed} bytes), but the browser has ${mib(left)} (${left} bytes) left for this site. ` +
        "The run continues unsaved until there is space. Free disk space or clear this site's data.",
    );
  }
}
