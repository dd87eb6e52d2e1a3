/**
 * Writes a run's metrics to further files that `trainer.logger` names. metrics.jsonl is always written, because reports, `compare` and
 * resumed runs read it.
 */

import { hostname } from 'node:os';
import type { Metrics } from '../../grpo/metrics.ts';
import { csvColumns, csvRow, csvText } from '../../report/csv.ts';
import { fileHeader, scalars, sessionStart } from '../../report/tensorboard.ts';
import type { FileSystem } from '../../runs/fileSystem.ts';
import type { RunFolder } from '../../runs/runFolder.ts';

export interface Tracker {
  /**
   * Writes the metrics of one step.
   * @param history metrics of all steps of the run so far, this step included
   */
  log(metrics: Metrics, history: readonly Metrics[]): Promise<void>;
}

/**
 * Opens the trackers of a config.
 * @param history metrics that a resumed run has already logged, so that no step is written twice
 */
export async function openTrackers(
  loggers: readonly string[],
  folder: RunFolder,
  history: readonly Metrics[],
): Promise<Tracker[]> {
  const trackers: Tracker[] = [];
  if (loggers.includes('csv')) trackers.push(await CsvFile.open(folder, history));
  if (loggers.includes('tensorboard')) trackers.push(await EventFile.open(folder, history));
  return trackers;
}

/** Writes metrics.csv. A metric that appears for the first time becomes the last column, and the file is rewritten. */
class CsvFile implements Tracker {
  readonly #files: FileSystem;
  readonly #path: string;
  #columns: string[];

  private constructor(folder: RunFolder, columns: string[]) {
    this.#files = folder.files;
    this.#path = folder.file('metrics.csv');
    this.#columns = columns;
  }

  static async open(folder: RunFolder, history: readonly Metrics[]): Promise<CsvFile> {
    const csv = new CsvFile(folder, csvColumns(history));
    if (history.length > 0) await csv.#write(history);
    return csv;
  }

  async log(metrics: Metrics, history: readonly Metrics[]): Promise<void> {
    if (Object.keys(metrics).every((name) => this.#columns.includes(name)))
      return this.#files.append(this.#path, `${csvRow(this.#columns, metrics)}\n`);
    this.#columns = csvColumns(history);
    await this.#write(history);
  }

  #write(history: readonly Metrics[]): Promise<void> {
    return this.#files.write(this.#path, csvText(this.#columns, history));
  }
}

/** Metric with the number of the step, which TensorBoard events have as a separate field. */
const STEP = 'training/global_step';

/**
 * Writes TensorBoard files (events.out.tfevents.*) to the run folder. `tensorboard --logdir runs` shows each run by the name of its folder.
 * A resumed run starts another file, so that TensorBoard discards steps that are trained again.
 */
class EventFile implements Tracker {
  readonly #files: FileSystem;
  readonly #path: string;

  private constructor(files: FileSystem, path: string) {
    this.#files = files;
    this.#path = path;
  }

  static async open({ files, path }: RunFolder, history: readonly Metrics[]): Promise<EventFile> {
    const earlier = (await files.list(path)).filter((name) => name.includes('tfevents')).length;
    const seconds = Date.now() / 1000;
    // The name of an event file contains the time and a counter, because TensorBoard reads the files of a folder in the order of their
    // names.
    const name = `events.out.tfevents.${Math.floor(seconds)}.${hostname()}.${process.pid}.${earlier}`;
    const file = new EventFile(files, `${path}/${name}`);
    await files.write(file.#path, fileHeader(seconds));
    const last = history.at(-1);
    if (earlier > 0)
      await files.append(file.#path, sessionStart({ wallTime: seconds, step: last ? last[STEP] + 1 : 0 }));
    else for (const line of history) await file.log(line); // earlier steps were logged without this tracker
    return file;
  }

  async log({ [STEP]: step, ...metrics }: Metrics): Promise<void> {
    await this.#files.append(this.#path, scalars({ wallTime: Date.now() / 1000, step }, metrics));
  }
}
