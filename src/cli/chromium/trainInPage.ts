/**
 * For Playwright tests: trains like `webgrpo train`, with the engine in a page. Attaches the log lines and the report to the test's
 * results.
 */

import { join } from 'node:path';
import type { Page, TestInfo } from '@playwright/test';
import type { TrainConfigInput } from '../../grpo/config/input.ts';
import { resolveTrainConfig } from '../../grpo/config/resolve.ts';
import { parseTrainConfig } from '../../extensions/yaml/index.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { RunSummary } from '../../report/summary.ts';
import type { BestCheckpoint } from '../../runs/keptCheckpoints.ts';
import { RunFolder } from '../../runs/runFolder.ts';
import type { Task } from '../../tasks/task.ts';
import { runTraining } from '../commands/train.ts';
import { disk } from '../files.ts';
import { type Io, processIo, withIo } from '../process/io.ts';
import { openTraining } from '../run/namedRun.ts';
import { say } from '../run/progress.ts';
import { checkpointToResume } from '../run/resume.ts';
import { openPageEngine } from './pageEngine.ts';

/** Options of `trainInPage`. */
export interface TrainInPageOptions {
  /** Task to train on. Default: the task of the config. */
  task?: Task;
  /** Overrides as on the command line, such as `actor.optim.lr=1e-4`. Used only if the config is a file. */
  overrides?: readonly string[];
}

/** Result of a run. */
export interface TrainedRun {
  /** Metrics, one entry per step, as in metrics.jsonl. */
  history: Metrics[];
  /** Totals of the run, which the command line prints as a table at the end. */
  summary: RunSummary;
  /** Run folder: config, metrics, samples, checkpoints, report.html. */
  folder: string;
  /** Best checkpoint by trainer.metricForBestModel; undefined if the config does not set it. */
  best: BestCheckpoint | undefined;
  /** Lines that the command line would print. */
  log: string[];
}

/** See WebGpuFixtures of `webgrpo/playwright`. */
export async function trainInPage(
  page: Page,
  info: Pick<TestInfo, 'attach' | 'outputPath'>,
  config: TrainConfigInput | string,
  { task, overrides = [] }: TrainInPageOptions = {},
): Promise<TrainedRun> {
  const lines: string[] = [];
  const io = quietIo(page, (text) => lines.push(...text.split('\n').filter((line) => line !== '')));
  try {
    return await withIo(io, async () => {
      const resolved = await configOf(config, overrides, info.outputPath('runs'));
      const { name, trainer } = resolved;
      const { summary, best } = await runTraining(resolved, () => checkpointToResume(resolved), task);
      const run = RunFolder.open(disk, join(trainer.defaultLocalDir, name));
      await info.attach('report.html', { path: run.file('report.html') });
      return { history: await run.metrics(), summary, folder: run.path, best, log: lines };
    });
  } finally {
    await info.attach('train.log', { body: `${lines.join('\n')}\n`, contentType: 'text/plain' });
  }
}

/**
 * Returns the config of a run. The run folder is in the Playwright test's output folder unless the config sets trainer.defaultLocalDir.
 */
async function configOf(
  config: TrainConfigInput | string,
  overrides: readonly string[],
  folder: string,
): Promise<TrainConfig> {
  if (typeof config !== 'string')
    return resolveTrainConfig({ ...config, trainer: { defaultLocalDir: folder, ...config.trainer } });
  const { text, ...options } = await openTraining(config, overrides);
  const place = options.run ? [] : [`trainer.defaultLocalDir=${JSON.stringify(folder)}`];
  return parseTrainConfig(text, { ...options, overrides: [...place, ...options.overrides], note: say });
}

/**
 * Io of a command whose engines are in the page. Does not handle signals (Playwright does), and collects the lines instead of printing
 * them.
 */
const quietIo = (page: Page, write: (text: string) => void): Io => ({
  ...processIo,
  stdout: { write: () => true },
  stderr: { write },
  onSignal: () => {},
  endBy: () => {},
  createEngine: (spec) => openPageEngine(page, spec),
});
