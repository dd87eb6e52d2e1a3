/** `webgrpo train`: runs GRPO from a YAML config into a run folder, with progress lines, Ctrl-C and a final table. */

import { join } from 'node:path';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { parseTrainConfig } from '../../extensions/yaml/index.ts';
import { completedConfig } from '../../grpo/generate/trainingSet.ts';
import { InputError } from '../../errors.ts';
import { oneFile } from '../args.ts';
import { IMPORT_FLAG } from '../importModule.ts';
import { type Command, JSON_FLAG, type Output } from '../command.ts';
import { stepToResume } from '../../runs/checkpointFolder.ts';
import { disk } from '../files.ts';
import { RunFolder } from '../../runs/runFolder.ts';
import { openTraining } from '../run/namedRun.ts';
import { sayEstimate, sayPlan } from '../run/plan.ts';
import { say } from '../run/progress.ts';
import { summaryTable } from '../../report/summary.ts';
import { checkpointToResume, resumeCommand } from '../run/resume.ts';
import { openSession } from '../run/session.ts';
import { type FinishedRun, trainInto } from '../run/shownRun.ts';
import { holdFolder } from '../process/heldFolder.ts';
import { STOPPED_EXIT_CODE, STOPS } from '../process/interrupt.ts';
import { withRewardFiles } from '../run/rewardFiles.ts';
import { withWarmStart } from '../run/warmStart.ts';
import type { Task } from '../../tasks/task.ts';

export const train: Command = {
  summary: 'train by GRPO',
  usage: [
    'train configs/gsm8k-tool.yaml',
    'train configs/gsm8k-tool.yaml seed=2 actor.optim.lr=1e-4',
    'train runs/gsm8k-tool trainer.totalTrainingSteps=120',
  ],
  reads: ['words', 'settings'],
  flags: {
    ...JSON_FLAG,
    ...IMPORT_FLAG,
    in: { value: 'chromium', help: 'train in a page of a headless Chromium instead of Node; needs @playwright/test' },
    'dry-run': { help: 'print the memory plan, the batches and an estimate of the time, and train nothing' },
  },
  details: () => STOPS,
  async run({ positionals, overrides, flags, lists }, io) {
    const path = oneFile(positionals, 'config or run folder');
    const { text, ...options } = await openTraining(path, overrides);
    const config = parseTrainConfig(text, { ...options, note: say });
    const within = placeOf(flags['in']);
    if (flags['dry-run'] === true) return within(() => dryRun(config, io));
    const finished = await within(() => runTraining(config, () => checkpointToResume(config)));
    return tellOfRun(io, config, finished, resumeCommand(path, { overrides, flags, lists }));
  },
};

type Place = <T>(work: () => Promise<T>) => Promise<T>;

/**
 * Returns a function that runs `work` with its engines where --in says: in this Node process, or in pages of Chromium. Throws InputError
 * for another place.
 */
function placeOf(name: string | boolean | undefined): Place {
  if (name === undefined) return (work) => work();
  if (name !== 'chromium')
    throw new InputError(`--in is "${String(name)}"; allowed: chromium. Leave it out to train in Node.`);
  return async (work) => (await import('../chromium/browser.ts')).inChromium(work);
}

/** Prints the plan of a run and writes nothing. */
async function dryRun(asked: TrainConfig, io: Output): Promise<void> {
  const { path } = asked.model;
  if (/\.ya?ml$/.test(path))
    throw new InputError(
      `--dry-run trains no warm start, but model.path is ${path}. Give a model, for example model.path=DIR.`,
    );
  const from = await checkpointToResume(asked);
  const done = from === undefined ? 0 : await stepToResume(disk, from);
  const session = await openSession(await withRewardFiles(asked));
  try {
    const config = completedConfig(asked, session.task, session.engine, session.lora && true);
    const plan = sayPlan(config, asked, session);
    const estimate = await sayEstimate(config, session, new AbortController().signal, done);
    io.result({ ...plan, ...(estimate && { estimate }) });
  } finally {
    session.close();
  }
}

/**
 * Prints the results of a run. Returns the exit code.
 * @param again the command line that resumes the run
 */
export function tellOfRun(
  io: Output,
  config: TrainConfig,
  { summary, stopped, best, warnings }: FinishedRun,
  again: string,
): number {
  const path = join(config.trainer.defaultLocalDir, config.name);
  if (stopped) say(`Stopped and saved. To resume: ${again}`);
  io.text(summaryTable(summary));
  for (const warning of warnings) say(warning);
  if (best) io.text(`  best: step ${best.step}, ${best.metric} ${best.value} (${join(path, best.checkpoint)})`);
  io.text(`  run folder: ${path} (open ${join(path, 'report.html')})`);
  io.result({ run: path, stopped, ...(best && { best }), ...summary });
  return stopped ? STOPPED_EXIT_CODE : 0;
}

/**
 * Trains one run in its folder, which is locked against other processes. All engines are closed when this returns.
 * @param checkpoint returns the checkpoint folder to resume from (undefined = from the start); called once the run folder is locked
 * @param task task to use instead of the config's
 */
export async function runTraining(
  asked: TrainConfig,
  checkpoint: () => Promise<string | undefined>,
  task?: Task,
): Promise<FinishedRun> {
  const config = await withRewardFiles(asked);
  const path = join(config.trainer.defaultLocalDir, config.name);
  using held = holdFolder(path);
  const folder = RunFolder.open(held.files, path);
  const from = await checkpoint();
  return await trainInto({
    folder,
    config,
    from,
    open: async () => openSession(await withWarmStart(config), 'train', task),
  });
}
