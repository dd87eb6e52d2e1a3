/** Which checkpoints of a run stay: the newest few (`trainer.maxActorCkptToKeep`) and the best (`trainer.metricForBestModel`). */

import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { relative } from 'node:path';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { nearestKey } from '../../grpo/config/resolve.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { InputError } from '../../errors.ts';
import { writeWhole } from '../files.ts';
import { checkpointSteps } from './checkpoints.ts';
import type { RunFolder } from './runFolder.ts';

/** best.json of a run folder. */
export interface BestCheckpoint {
  step: number;
  metric: string;
  value: number;
  /** Its folder, from the run folder. */
  checkpoint: string;
}

type Settings = Pick<TrainConfig['trainer'], 'maxActorCkptToKeep' | 'metricForBestModel' | 'greaterIsBetter'>;

export class KeptCheckpoints {
  readonly #folder: RunFolder;
  readonly #settings: Settings;
  #best: { step: number; value: number } | undefined;
  /** The metric has been in some step. */
  #seen = false;

  /** @param history what the run has logged already, when it goes on */
  constructor(folder: RunFolder, settings: Settings, history: readonly Metrics[] = []) {
    this.#folder = folder;
    this.#settings = settings;
    for (const line of history) if (existsSync(folder.checkpoint(line['training/global_step']))) this.isBest(line);
  }

  get best(): BestCheckpoint | undefined {
    const { metricForBestModel: metric } = this.#settings;
    if (!this.#best || metric === undefined) return undefined;
    const checkpoint = relative(this.#folder.path, this.#folder.checkpoint(this.#best.step));
    return { step: this.#best.step, metric, value: this.#best.value, checkpoint };
  }

  /**
   * True if no trained step before was as good: its checkpoint is wanted. Throws InputError where the metric is none that
   * steps have.
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

  /** After a checkpoint was written: says in best.json which is the best, and deletes those that are too many. */
  async update(): Promise<void> {
    if (this.best) await writeWhole(this.#folder.file('best.json'), `${JSON.stringify(this.best, null, 2)}\n`);
    const { maxActorCkptToKeep: keep } = this.#settings;
    if (keep === undefined) return;
    const old = (await checkpointSteps(this.#folder.path)).slice(0, -keep);
    for (const step of old.filter((saved) => saved !== this.#best?.step))
      await rm(this.#folder.checkpoint(step), { recursive: true });
  }

  /** A mistyped name is said at the first line that would have it, not after the run. */
  #checkName(metric: string, line: Metrics): void {
    this.#seen ||= metric in line;
    const isValidation = (name: string) => name.startsWith('val-');
    const names = Object.keys(line).filter((name) => isValidation(name) === isValidation(metric));
    const due = isValidation(metric) ? names.length > 0 : line['training/global_step'] > 0;
    if (this.#seen || !due) return;
    throw new InputError(
      `trainer.metricForBestModel is "${metric}", which this run's steps do not have; did you mean "${nearestKey(metric, names)}"?`,
    );
  }
}
