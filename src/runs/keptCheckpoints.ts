/** Decides which checkpoints of a run are kept: the newest (`trainer.maxActorCkptToKeep`) and the best (`trainer.metricForBestModel`). */

import type { TrainConfig } from '../grpo/config/types.ts';
import { nearestKey } from '../grpo/config/resolve.ts';
import type { Metrics } from '../grpo/metrics.ts';
import { InputError } from '../errors.ts';
import { checkpointSteps } from './checkpointFolder.ts';
import type { RunFolder } from './runFolder.ts';

/** Content of best.json in a run folder. */
export interface BestCheckpoint {
  step: number;
  metric: string;
  value: number;
  /** Checkpoint folder, relative to the run folder. */
  checkpoint: string;
}

type Settings = Pick<TrainConfig['trainer'], 'maxActorCkptToKeep' | 'metricForBestModel' | 'greaterIsBetter'>;

/** Tracks the best checkpoint of a run, and deletes checkpoints that are not to be kept. */
export class KeptCheckpoints {
  readonly #folder: RunFolder;
  readonly #settings: Settings;
  #best: { step: number; value: number } | undefined;
  /** Step of a checkpoint that the next checkpoint replaces. */
  #passing: number | undefined;
  /** True if a line of metrics has had trainer.metricForBestModel. */
  #seen = false;

  /**
   * Starts to track the checkpoints of a new or resumed run.
   * @param options.history metrics that a resumed run has logged already
   * @param options.passing step of the checkpoint to resume from, if the next checkpoint replaces it
   */
  static async open(
    folder: RunFolder,
    settings: Settings,
    { history = [], passing }: { history?: readonly Metrics[]; passing?: number | undefined } = {},
  ): Promise<KeptCheckpoints> {
    const kept = new KeptCheckpoints(folder, settings);
    kept.#passing = passing;
    const saved = await checkpointSteps(folder.files, folder.path);
    for (const line of history) if (saved.includes(line['training/global_step'])) kept.isBest(line);
    // Deletes what a killed run could not delete after it had saved a checkpoint.
    if (history.length > 0) await kept.prune();
    return kept;
  }

  private constructor(folder: RunFolder, settings: Settings) {
    this.#folder = folder;
    this.#settings = settings;
  }

  get best(): BestCheckpoint | undefined {
    const { metricForBestModel: metric } = this.#settings;
    if (!this.#best || metric === undefined) return undefined;
    const checkpoint = `checkpoints/step-${this.#best.step}`;
    return { step: this.#best.step, metric, value: this.#best.value, checkpoint };
  }

  /**
   * Returns true if the step is better than all earlier trained steps. Its checkpoint must then be saved. Throws InputError if steps do not
   * have the metric.
   */
  isBest(line: Metrics): boolean {
    const { metricForBestModel: metric, greaterIsBetter = !metric?.endsWith('loss') } = this.#settings;
    const step = line['training/global_step'];
    if (metric === undefined) return false;
    this.#checkName(metric, line);
    const value = line[metric] ?? NaN;
    const sign = greaterIsBetter ? 1 : -1;
    if (step === 0 || !Number.isFinite(value) || (this.#best && sign * value <= sign * this.#best.value)) return false;
    this.#best = { step, value };
    return true;
  }

  /**
   * Deletes surplus checkpoints. Called after the checkpoint of `step` was written.
   * @param passing true if this checkpoint is only there to resume from, and the next checkpoint replaces it
   */
  async update(step: number, passing = false): Promise<void> {
    const passed = this.#passing;
    this.#passing = passing ? step : undefined;
    if (passed !== undefined && passed !== step && passed !== this.#best?.step)
      await this.#folder.files.remove(this.#folder.checkpoint(passed));
    await this.prune();
  }

  /** Writes the step and the metric's value of the best checkpoint to best.json, and deletes checkpoints that are not to be kept. */
  async prune(): Promise<void> {
    if (this.best)
      await this.#folder.files.write(this.#folder.file('best.json'), `${JSON.stringify(this.best, null, 2)}\n`);
    const { maxActorCkptToKeep: keep } = this.#settings;
    if (keep === undefined) return;
    const old = (await checkpointSteps(this.#folder.files, this.#folder.path)).slice(0, -keep);
    for (const step of old.filter((saved) => saved !== this.#best?.step))
      await this.#folder.files.remove(this.#folder.checkpoint(step));
  }

  /** Throws InputError for a mistyped metric name at the first line that should have the metric, instead of after the run. */
  #checkName(metric: string, line: Metrics): void {
    this.#seen ||= metric in line;
    const isValidation = (name: string) => name.startsWith('val-');
    const names = Object.keys(line).filter((name) => isValidation(name) === isValidation(metric));
    const due = isValidation(metric) ? names.length > 0 : line['training/global_step'] > 0;
    if (this.#seen || !due) return;
    throw new InputError(
      `trainer.metricForBestModel is "${metric}", which this run's steps do not have. Did you mean "${nearestKey(metric, names)}"?`,
    );
  }
}
