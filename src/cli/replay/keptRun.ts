/** A run folder with stored steps (trainer.keepRollouts), and the config of each step. */

import { existsSync } from 'node:fs';
import { InputError } from '../../errors.ts';
import { parseTrainConfig } from '../../extensions/yaml/index.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { type KeptStep, keptSteps, readKept, settingsHash } from '../../extensions/replay/index.ts';
import { RunFolder } from '../../runs/runFolder.ts';
import { disk, readText } from '../files.ts';
import { say } from '../run/progress.ts';

export interface KeptRun {
  folder: RunFolder;
  /** Numbers of the stored steps, in ascending order; at least one. */
  steps: number[];
}

/** Opens a run folder. Throws InputError if the folder is not a run or has no stored steps. */
export async function openKeptRun(path: string): Promise<KeptRun> {
  const folder = RunFolder.open(disk, path);
  const config = folder.file('config.yaml');
  if (!existsSync(config))
    throw new InputError(`${path} is not a run folder: config.yaml is missing. Give a run folder.`);
  const steps = await keptSteps(folder);
  if (steps.length > 0) return { folder, steps };
  throw new InputError(
    `${path} has no saved rollouts. Train with trainer.keepRollouts=true, as in: train ${config} trainer.keepRollouts=true.`,
  );
}

/** Returns the numbers of the steps that `--step` selects (a number, "last" or "all"). Throws InputError. */
export function chosenSteps(
  { folder, steps }: KeptRun,
  flag: string | boolean | undefined,
  byDefault: 'last' | 'all',
): number[] {
  const asked = flag ?? byDefault;
  if (asked === 'all') return steps;
  if (asked === 'last') return steps.slice(-1);
  const step = steps.find((one) => String(one) === asked);
  if (step !== undefined) return [step];
  throw new InputError(
    `--step is "${asked}", but ${folder.path} has saved rollouts of ${listed(steps)}. Give one of them, last or all.`,
  );
}

/** Formats step numbers as "step 4", "steps 1 to 8" or "steps 1, 4, 9". */
function listed(steps: readonly number[]): string {
  const [first, last] = [steps[0], steps.at(-1)!];
  if (first === last) return `step ${first}`;
  return `steps ${last - first === steps.length - 1 ? `${first} to ${last}` : steps.join(', ')}`;
}

/** Reads a stored step and the text of its config. A resumed run can have several configs; a step identifies its own by a hash. */
export async function openStep({ folder }: KeptRun, step: number): Promise<{ kept: KeptStep; configText: string }> {
  const kept = await readKept(folder, step);
  const files = (await disk.list(folder.path)).filter((name) => /^config(-\d+)?\.yaml$/.test(name)).sort();
  for (const name of files) {
    const configText = await readText(folder.file(name));
    if (settingsHash(parsed(configText, folder.file(name))) === kept.config) return { kept, configText };
  }
  say(`config.yaml is used for step ${step}: the config of that step is no longer in ${folder.path}`);
  return { kept, configText: await readText(folder.file('config.yaml')) };
}

/** Parses the config of a run and applies overrides. Throws InputError. */
export const parsed = (text: string, source: string, overrides: string[] = []): TrainConfig =>
  parseTrainConfig(text, { source, overrides, note: () => {} });
