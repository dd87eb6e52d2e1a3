/**
 * runs/<name>/: config.yaml (resolved), metrics.jsonl, rollouts/step-N.jsonl, checkpoints/step-N/, report.html.
 * Whatever moment the process is killed at, every file is whole; at most the last line of metrics.jsonl is missing.
 */

import { existsSync } from 'node:fs';
import { appendFile, mkdir, readdir, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { stringify } from 'yaml';
import type { Metrics } from '../../grpo/metrics.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import type { Message } from '../../tasks/task.ts';
import { writeWhole } from '../files.ts';

/** One sampled rollout, as `rollouts/step-N.jsonl` holds it a line. */
export interface LoggedRollout {
  step: number;
  group: number;
  problem: string;
  answer: string;
  /** Prompt and everything after it. */
  messages: Message[];
  /** null = the task gave none. */
  score: number | null;
  acc: number | null;
  stopReason: string;
  numTurns: number;
  numToolCalls: number;
  responseTokens: number;
}

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

  async writeRollouts(step: number, rollouts: readonly LoggedRollout[]): Promise<void> {
    if (rollouts.length === 0) return;
    const lines = rollouts.map((rollout) => `${JSON.stringify(rollout)}\n`).join('');
    await writeWhole(this.file('rollouts', `step-${step}.jsonl`), lines);
  }

  /** Logged rollouts of every step, in order of steps. */
  async rollouts(): Promise<LoggedRollout[]> {
    if (!existsSync(this.file('rollouts'))) return [];
    const names = await readdir(this.file('rollouts'));
    const steps = names.flatMap((name) => /^step-(\d+)\.jsonl$/.exec(name)?.[1] ?? []).map(Number);
    const texts = steps
      .sort((a, b) => a - b)
      .map((step) => readFile(this.file('rollouts', `step-${step}.jsonl`), 'utf8'));
    return (await Promise.all(texts)).flatMap((text) => wholeLines<LoggedRollout>(text));
  }

  private async writeConfig(config: unknown): Promise<void> {
    await writeWhole(this.file('config.yaml'), stringify(config));
  }
}

/** The first `count` samples of a step, group by group, as they are logged. */
export function loggedRollouts(samples: readonly Sample[], step: number, count: number): LoggedRollout[] {
  return samples.slice(0, count).map(({ problem, group, trajectory, messages, reward }) => ({
    step,
    group,
    problem: problem.id,
    answer: problem.answer,
    messages: [...problem.messages, ...messages],
    score: Number.isNaN(reward.score) ? null : reward.score,
    acc: Number.isNaN(reward.acc) ? null : reward.acc,
    stopReason: trajectory.stopReason,
    numTurns: trajectory.numTurns,
    numToolCalls: trajectory.numToolCalls,
    responseTokens: trajectory.responseIds.length,
  }));
}

function wholeLines<T>(text: string): T[] {
  const lines = text.split('\n');
  lines.pop(); // after the last newline: nothing, or a line cut short
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as T);
}
