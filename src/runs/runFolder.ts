/**
 * The folder of a run, runs/<name>/:
 * - config.yaml (resolved), and config-N.yaml for earlier steps if the config was changed
 * - metrics.jsonl, profile/step-N.jsonl, errors/step-N.jsonl, checkpoints/step-N/
 * - rollouts/step-N.jsonl, val-step-N.jsonl (evaluations) and step-N.safetensors (keptRollouts.ts)
 * - report.html with its data in report.json
 * Every file is complete whenever the process is killed; at most the last line of metrics.jsonl is missing.
 */

import { stringify } from 'yaml';
import type { Metrics } from '../grpo/metrics.ts';
import { profileText, type StepProfile } from './profileLog.ts';
import { readMetrics, readProfile, readRollouts } from './readLog.ts';
import type { LoggedRollout } from './rollouts.ts';
import { type FileSystem, freeName, readFileText } from './fileSystem.ts';

/** Logs with one file per step: folder, and name before the step's number. */
const STEP_LOGS = [
  ['rollouts', 'step'],
  ['rollouts', 'val-step'],
  ['profile', 'step'],
] as const;

/** Reads and writes the files of one run. */
export class RunFolder {
  readonly files: FileSystem;
  readonly path: string;

  private constructor(files: FileSystem, path: string) {
    this.files = files;
    this.path = path;
  }

  /** Creates the folder of a new run. The folder of an earlier run with that name is renamed to the next free number. */
  static async create(
    files: FileSystem,
    path: string,
    config: unknown,
  ): Promise<{ folder: RunFolder; moved: string | undefined }> {
    await files.tidy(path);
    const moved = (await files.exists(path)) ? await freeName(files, path) : undefined;
    if (moved !== undefined) await files.rename(path, moved);
    const folder = new RunFolder(files, path);
    await folder.writeConfig(config);
    return { folder, moved };
  }

  /**
   * Reopens the folder of a run that resumes after `step`. Deletes later logs (metrics, rollouts, profiles), because the run repeats these
   * steps. If `step` is 0, deletes the logs of step 0 too. The data of failed steps stay.
   */
  static async reopen(files: FileSystem, path: string, step: number, config: unknown): Promise<RunFolder> {
    await files.tidy(path);
    const folder = new RunFolder(files, path);
    const isKept = (logged: number) => step > 0 && logged <= step;
    await folder.writeMetrics((await folder.metrics()).filter((line) => isKept(line['training/global_step'])));
    for (const [of, name] of STEP_LOGS)
      for (const logged of await folder.stepsIn(of, name))
        if (!isKept(logged)) await files.remove(folder.file(of, `${name}-${logged}.jsonl`));
    await folder.writeConfig(config);
    return folder;
  }

  static open(files: FileSystem, path: string): RunFolder {
    return new RunFolder(files, path);
  }

  file(...names: string[]): string {
    return [this.path, ...names].join('/');
  }

  checkpoint(step: number): string {
    return this.file('checkpoints', `step-${step}`);
  }

  /** Replaces all lines of metrics.jsonl. */
  async writeMetrics(lines: readonly Metrics[]): Promise<void> {
    await this.files.write(this.file('metrics.jsonl'), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  }

  async appendMetrics(metrics: Metrics): Promise<void> {
    await this.files.append(this.file('metrics.jsonl'), `${JSON.stringify(metrics)}\n`);
  }

  /** Returns every line of metrics.jsonl that can be read. */
  async metrics(): Promise<Metrics[]> {
    const path = this.file('metrics.jsonl');
    return (await this.files.exists(path)) ? readMetrics(await readFileText(this.files, path), path) : [];
  }

  /** Writes the answers of the evaluation after `step`. */
  async writeValRollouts(step: number, rollouts: readonly LoggedRollout[]): Promise<void> {
    await this.writeRollouts(step, rollouts, 'val-step');
  }

  async writeRollouts(step: number, rollouts: readonly LoggedRollout[], name = 'step'): Promise<void> {
    if (rollouts.length === 0) return;
    const lines = rollouts.map((rollout) => `${JSON.stringify(rollout)}\n`).join('');
    await this.files.write(this.file('rollouts', `${name}-${step}.jsonl`), lines);
  }

  /** Returns the logged rollouts of every step, in order of steps. */
  async rollouts(): Promise<LoggedRollout[]> {
    return (await this.stepFiles('rollouts')).flatMap(({ text, file }) => readRollouts(text, file));
  }

  /** Returns the logged answers of all evaluations, in order of steps. */
  async valRollouts(): Promise<LoggedRollout[]> {
    return (await this.stepFiles('rollouts', 'val-step')).flatMap(({ text, file }) => readRollouts(text, file));
  }

  /** Writes the data on which a step failed to errors/step-N.jsonl, one JSON value per line. Returns the path of the file. */
  async writeError(step: number, lines: readonly unknown[]): Promise<string> {
    const path = this.file('errors', `step-${step}.jsonl`);
    await this.files.write(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
    return path;
  }

  async writeProfile(profile: StepProfile): Promise<void> {
    await this.files.write(this.file('profile', `step-${profile.step}.jsonl`), profileText(profile));
  }

  /** Returns the profile of every step that can be read, in order. */
  async profiles(): Promise<StepProfile[]> {
    return (await this.stepFiles('profile')).flatMap(({ text, file }) => readProfile(text, file));
  }

  /** Returns the numbers N of the files `<name>-N.jsonl` in a folder, in ascending order. */
  private async stepsIn(folder: string, name: string): Promise<number[]> {
    const files = await this.files.list(this.file(folder));
    const pattern = new RegExp(`^${name}-(\\d+)\\.jsonl$`);
    const steps = files.flatMap((file) => pattern.exec(file)?.[1] ?? []).map(Number);
    return steps.sort((a, b) => a - b);
  }

  /** Returns the texts of the files `<name>-N.jsonl` in a folder, in order of steps. */
  private async stepFiles(folder: string, name = 'step'): Promise<{ text: string; file: string }[]> {
    const paths = (await this.stepsIn(folder, name)).map((step) => this.file(folder, `${name}-${step}.jsonl`));
    return Promise.all(paths.map(async (file) => ({ file, text: await readFileText(this.files, file) })));
  }

  /**
   * Copies config.yaml to the first free name of config-1.yaml, config-2.yaml, ..., before another config replaces it. Returns the path of
   * the copy.
   */
  async keepConfig(): Promise<string> {
    const text = await readFileText(this.files, this.file('config.yaml'));
    for (let n = 1; ; n++) {
      const path = this.file(`config-${n}.yaml`);
      const taken = await this.files.exists(path);
      // If a run was killed after it wrote the copy and before the new config was written, a file with the same text exists already and is
      // used.
      if (taken && (await readFileText(this.files, path)) !== text) continue;
      if (!taken) await this.files.write(path, text);
      return path;
    }
  }

  /** Returns trainer.totalTrainingSteps of each config that `keepConfig` has kept. */
  async keptSteps(): Promise<number[]> {
    const names = (await this.files.list(this.path)).filter((name) => /^config-\d+\.yaml$/.test(name));
    const texts = await Promise.all(names.map((name) => readFileText(this.files, this.file(name))));
    return texts.flatMap((text) => /^ +totalTrainingSteps: (\d+)$/m.exec(text)?.slice(1).map(Number) ?? []);
  }

  private async writeConfig(config: unknown): Promise<void> {
    await this.files.write(this.file('config.yaml'), stringify(config));
  }
}
