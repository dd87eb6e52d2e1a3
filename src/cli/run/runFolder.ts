/**
 * runs/<name>/: config.yaml (resolved), metrics.jsonl, rollouts/step-N.jsonl (val-step-N.jsonl: of evaluations), profile/step-N.jsonl, checkpoints/step-N/,
 * report.html with its data in report.json.
 * Every file is whole at whatever moment the process is killed; at most the last line of metrics.jsonl is missing.
 */

import { existsSync } from 'node:fs';
import { appendFile, mkdir, readdir, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { stringify } from 'yaml';
import type { Metrics } from '../../grpo/metrics.ts';
import { parseProfile, profileText, type StepProfile } from '../../report/profileLog.ts';
import type { LoggedRollout } from '../../report/rollouts.ts';
import { writeWhole } from '../files.ts';

export class RunFolder {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /** A fresh folder; an earlier run of that name is kept under the next free number. */
  static async create(path: string, config: unknown): Promise<{ folder: RunFolder; moved: string | undefined }> {
    let moved: string | undefined;
    if (existsSync(path)) {
      for (let n = 1; moved === undefined; n++) if (!existsSync(`${path}-${n}`)) moved = `${path}-${n}`;
      await rename(path, moved);
    }
    await mkdir(join(path, 'rollouts'), { recursive: true });
    const folder = new RunFolder(path);
    await folder.writeConfig(config);
    return { folder, moved };
  }

  /** The folder of a run that goes on after `step`; what was logged later is dropped, since it is done again. */
  static async reopen(path: string, step: number, config: unknown): Promise<RunFolder> {
    const folder = new RunFolder(path);
    const kept = (await folder.metrics()).filter((line) => line['training/global_step'] <= step);
    await writeWhole(folder.file('metrics.jsonl'), kept.map((line) => `${JSON.stringify(line)}\n`).join(''));
    await mkdir(folder.file('rollouts'), { recursive: true });
    await folder.writeConfig(config);
    return folder;
  }

  static open(path: string): RunFolder {
    return new RunFolder(path);
  }

  file(...names: string[]): string {
    return join(this.path, ...names);
  }

  checkpoint(step: number): string {
    return this.file('checkpoints', `step-${step}`);
  }

  async appendMetrics(metrics: Metrics): Promise<void> {
    await appendFile(this.file('metrics.jsonl'), `${JSON.stringify(metrics)}\n`);
  }

  /** Every whole line; a line that a kill cut short is left out. */
  async metrics(): Promise<Metrics[]> {
    const path = this.file('metrics.jsonl');
    return existsSync(path) ? wholeLines<Metrics>(await readFile(path, 'utf8')) : [];
  }

  /** Answers of the evaluation after `step`. */
  async writeValRollouts(step: number, rollouts: readonly LoggedRollout[]): Promise<void> {
    await this.writeRollouts(step, rollouts, 'val-step');
  }

  async writeRollouts(step: number, rollouts: readonly LoggedRollout[], name = 'step'): Promise<void> {
    if (rollouts.length === 0) return;
    const lines = rollouts.map((rollout) => `${JSON.stringify(rollout)}\n`).join('');
    await writeWhole(this.file('rollouts', `${name}-${step}.jsonl`), lines);
  }

  /** Logged rollouts of every step, in order of steps. */
  async rollouts(): Promise<LoggedRollout[]> {
    return (await this.stepFiles('rollouts')).flatMap((text) => wholeLines<LoggedRollout>(text));
  }

  /** Logged answers of every evaluation, in order of steps. */
  async valRollouts(): Promise<LoggedRollout[]> {
    return (await this.stepFiles('rollouts', 'val-step')).flatMap((text) => wholeLines<LoggedRollout>(text));
  }

  async writeProfile(profile: StepProfile): Promise<void> {
    await writeWhole(this.file('profile', `step-${profile.step}.jsonl`), profileText(profile));
  }

  /** Every step that was recorded, in order. */
  async profiles(): Promise<StepProfile[]> {
    return (await this.stepFiles('profile')).map(parseProfile);
  }

  /** Texts of a folder's `step-N.jsonl` (or of another name than `step`), in order of steps. */
  private async stepFiles(folder: string, name = 'step'): Promise<string[]> {
    if (!existsSync(this.file(folder))) return [];
    const files = await readdir(this.file(folder));
    const pattern = new RegExp(`^${name}-(\\d+)\\.jsonl$`);
    const steps = files.flatMap((file) => pattern.exec(file)?.[1] ?? []).map(Number);
    steps.sort((a, b) => a - b);
    return Promise.all(steps.map((step) => readFile(this.file(folder, `${name}-${step}.jsonl`), 'utf8')));
  }

  private async writeConfig(config: unknown): Promise<void> {
    await writeWhole(this.file('config.yaml'), stringify(config));
  }
}

function wholeLines<T>(text: string): T[] {
  const lines = text.split('\n');
  lines.pop(); // after the last newline: nothing, or a line cut short
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as T);
}
