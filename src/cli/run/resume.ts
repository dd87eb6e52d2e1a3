/** `trainer.resumeMode`: where a run goes on from, and what to type to go on with one that was stopped. */

import { existsSync } from 'node:fs';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { InputError } from '../../errors.ts';
import { quoted, startedAs } from '../startedAs.ts';
import { checkpointSteps, hasTrainerState, newestCheckpoint } from './checkpoints.ts';
import { say } from './progress.ts';
import type { RunFolder } from './runFolder.ts';

/** The checkpoint folder to go on from; undefined = from scratch. Throws InputError where the one asked for is none. */
export async function checkpointToResume({ name, trainer }: TrainConfig): Promise<string | undefined> {
  const path = join(trainer.defaultLocalDir, name);
  if (trainer.resumeMode === 'resume_path') return checkpointIn(trainer.resumeFromPath!);
  if (trainer.resume)
    say('trainer.resume is now trainer.resumeMode: auto, disable or resume_path; true is read as auto.');
  if (trainer.resumeMode === 'disable' && !trainer.resume) return undefined;
  const newest = await newestCheckpoint(path);
  if (newest && hasTrainerState(newest)) return newest;
  say(`trainer.resumeMode is auto, but ${path} has no checkpoint of a training run: training from scratch`);
  return undefined;
}

async function checkpointIn(path: string): Promise<string> {
  for (const folder of [path, await newestCheckpoint(path)])
    if (folder !== undefined && hasTrainerState(folder)) return folder;
  const what = existsSync(path) ? 'is no checkpoint of a training run, and holds none' : 'does not exist';
  throw new InputError(
    `trainer.resumeFromPath: ${path} ${what}; give a folder such as runs/NAME/checkpoints/step-20, or a run folder.`,
  );
}

/** Checkpoints after `step`, which the run will do again, get another name, so that the newest is always the run's own. */
export async function setLaterAside(folder: RunFolder, step: number): Promise<void> {
  for (const later of (await checkpointSteps(folder.path)).filter((saved) => saved > step)) {
    const path = folder.checkpoint(later);
    let n = 1;
    while (existsSync(`${path}-${n}`)) n++;
    await rename(path, `${path}-${n}`);
    say(`the earlier checkpoint of step ${later} is kept as ${path}-${n}`);
  }
}

const RESUME_KEYS = /^trainer\.resume(Mode|FromPath)?=/;

/** The command that goes on with the run that these words started. */
export function resumeCommand(source: string, overrides: readonly string[]): string {
  const kept = overrides.filter((word) => !RESUME_KEYS.test(word));
  return [startedAs(), 'train', ...[source, ...kept, 'trainer.resumeMode=auto'].map(quoted)].join(' ');
}
