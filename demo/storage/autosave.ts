/** Writes a run into the browser's files while it trains. Writes wait for one another, and the run for none of them. */

import { amended } from '../../src/runs/amended.ts';
import { InputError } from '../../src/errors.ts';
import { isDomError } from '../../src/model/checkpoint/opfs.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { Checkpoint } from '../../src/grpo/types.ts';
import type { LoggedRollout } from '../../src/runs/rollouts.ts';
import { loadTrainerCheckpoint, newestCheckpoint, writeCheckpoint } from '../../src/runs/checkpointFolder.ts';
import type { FolderFiles } from '../../src/runs/fileSystem.ts';
import { changedKeys } from '../../src/runs/configChanges.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { changesText, type RunChange } from '../training/runChanges.ts';
import { CHANGES, claim, type Release, type SavedRun, type SavedRuns } from './savedRuns.ts';
import { NEWEST_BYTES, thinCheckpoints } from './thinning.ts';

/** Of a run, before its steps keep trainer.logRollouts of them alone. */
const TRIES_BYTES = 32 * 2 ** 20;

/** A reloaded page may come before the old one has let go. */
const CLAIM_MS = 3000;

/** A manifest and its names. */
const MANIFEST_BYTES = 4096;

export interface ReopenedRun {
  autosave: Autosave;
  saved: SavedRun;
  /** Undefined = the run had none yet, and starts over. */
  checkpoint: Checkpoint | undefined;
  /** Which checkpoints were damaged. */
  notes: string[];
}

export class Autosave {
  /** Newest step whose checkpoint is whole; -1 = none. */
  savedStep = -1;
  /** Hears why something could not be saved, and undefined whenever a checkpoint was. */
  onProblem: (problem: Error | undefined) => void = () => {};
  /** After each checkpoint that was written. */
  onSaved: () => void = () => {};
  readonly id: string;
  readonly #runs: SavedRuns;
  readonly #config: TrainConfig;
  readonly #release: Release;
  #folder: RunFolder;
  #writing = Promise.resolve();
  /** What metrics.jsonl lacks yet. */
  #lines: Metrics[] = [];
  #triesBytes = 0;

  private constructor(runs: SavedRuns, config: TrainConfig, id: string, release: Release) {
    [this.#runs, this.#config, this.id, this.#release] = [runs, config, id, release];
    this.#folder = RunFolder.open(runs.files, runs.path(id));
  }

  /** A new run. Throws InputError if there is no room. @param hub where its model comes from, when not from the usual one */
  static async begin(runs: SavedRuns, config: TrainConfig, hub: string | undefined): Promise<Autosave> {
    const record = { started: Date.now(), hub, finished: false };
    const { id, release } = await runs.name(config.name, record.started);
    const autosave = new Autosave(runs, config, id, release);
    try {
      autosave.#folder = (await RunFolder.create(runs.files, runs.path(id), config)).folder;
      await runs.writeRecord(id, record);
      await runs.prune();
    } catch (error) {
      release();
      throw error;
    }
    return autosave;
  }

  /**
   * A resumed run, as it is by now; what was logged after its newest whole checkpoint is dropped, since it is done again. Throws InputError
   * where another tab has it, or where it has checkpoints and none is whole.
   */
  static async goOn(runs: SavedRuns, id: string, config: TrainConfig): Promise<ReopenedRun> {
    const release = await claim(id, CLAIM_MS);
    if (!release) throw new InputError('This run is open in another tab.');
    try {
      const { files } = runs;
      const [path, saved, notes] = [runs.path(id), await runs.read(id), [] as string[]];
      await files.tidy(path); // a checkpoint that was being written is no damage
      const autosave = new Autosave(runs, config, id, release);
      if (saved.record.finished) await runs.updateRecord(id, { finished: false });
      const folder = await newestCheckpoint(files, path, 'trainer', (note) => notes.push(note));
      const checkpoint = folder === undefined ? undefined : await loadTrainerCheckpoint(files, folder);
      autosave.savedStep = checkpoint?.state.step ?? -1;
      if (changedKeys(saved.config, config).length > 0) await RunFolder.open(files, path).keepConfig();
      autosave.#folder = await RunFolder.reopen(files, path, autosave.savedStep, config);
      return { autosave, saved, checkpoint, notes };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** What a step, or the evaluation before the first, has shown. */
  step(metrics: Metrics, tries: LoggedRollout[]): void {
    this.#lines.push(metrics);
    const step = metrics['training/global_step'];
    this.#queue(async (missing) => {
      await this.#writeLines(missing);
      if (tries.length === 0) return;
      const lines = tries.map((rollout) => `${JSON.stringify(rollout)}\n`).join('');
      this.#triesBytes += lines.length;
      const kept = this.#triesBytes > TRIES_BYTES ? this.#config.trainer.logRollouts : tries.length;
      await this.#folder.writeRollouts(step, tries.slice(0, kept));
      await this.#runs.files.write(this.#folder.file('latest.jsonl'), lines);
    });
  }

  /** Further values of a step that has its line, or a line that belongs before others. */
  amend(metrics: Metrics): void {
    this.#queue(async (missing) => {
      await this.#writeLines(missing);
      const lines = amended(await this.#folder.metrics(), metrics);
      const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
      await this.#runs.files.write(this.#folder.file('metrics.jsonl'), text);
    });
  }

  /** All that was changed during the run. */
  changes(all: readonly RunChange[]): void {
    this.#queue(() => this.#runs.files.write(this.#folder.file(CHANGES), changesText(all)));
  }

  /** A checkpoint, after the lines of the steps that led to it. */
  save(step: number, files: FolderFiles): void {
    this.#queue(async (missing) => {
      await this.#writeLines(missing);
      await this.#makeRoom(files);
      const write = () => writeCheckpoint(this.#runs.files, this.#folder.checkpoint(step), files);
      await write().catch(async (error: unknown) => {
        if (!(error instanceof InputError) || !isDomError(error.cause, 'QuotaExceededError')) throw error;
        await this.#runs.prune(1); // browsers tell more room than they give
        await write();
      });
      this.savedStep = step;
      this.onProblem(undefined);
      await thinCheckpoints(this.#folder, NEWEST_BYTES);
      this.onSaved();
    });
  }

  /** Forgets what was logged after `step`; -1 = everything. */
  rewind(step: number): void {
    this.#lines = this.#lines.filter((line) => line['training/global_step'] <= step);
    this.#queue(async () => {
      this.#folder = await RunFolder.reopen(this.#runs.files, this.#folder.path, step, this.#config);
    });
  }

  /** Once everything is written; lets go of the run. */
  async end(finished: boolean): Promise<void> {
    if (finished) this.#queue(() => this.#runs.updateRecord(this.id, { finished }));
    await this.#writing;
    this.#release();
  }

  /** Where the browser has little room, earlier runs make way. Throws where that is not enough. */
  async #makeRoom(contents: FolderFiles): Promise<void> {
    const { files } = this.#runs;
    const needed = Array.from(contents.values(), ({ length }) => length).reduce((a, b) => a + b, 0) + MANIFEST_BYTES;
    const free = async () => (await files.free(this.#folder.path)) ?? Infinity;
    if (needed > (await free())) await this.#runs.prune(1);
    const left = await free();
    if (needed <= left) return;
    const mib = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
    throw new InputError(
      `A checkpoint takes ${mib(needed)} (${needed} bytes), and the browser has ${mib(left)} (${left} bytes) left for this page: the run goes ` +
        'on, and is saved again when there is room. Free disk space, or clear the data of this site.',
    );
  }

  /** Those that are missing yet: a line that came later may belong behind a `rewind`. */
  async #writeLines(lines: readonly Metrics[]): Promise<void> {
    for (const line of lines.filter((of) => this.#lines.includes(of))) {
      await this.#folder.appendMetrics(line);
      this.#lines = this.#lines.filter((other) => other !== line);
    }
  }

  /** A write that fails is said; the run continues, and so do later writes. @param write is given the lines that there were when it was asked for */
  #queue(write: (lines: readonly Metrics[]) => Promise<void>): void {
    const lines = [...this.#lines];
    this.#writing = this.#writing.then(() => write(lines)).catch((error: unknown) => this.onProblem(error as Error));
  }
}
