/** The stored steps of a run folder (rollouts/step-N.safetensors), which `trainer.keepRollouts` writes and `webgrpo replay` reads. */

import { InputError } from '../../errors.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { decodeStep, encodeStep, type KeptStep, settingsHash } from './keptStep.ts';
import type { StepInputs } from '../../grpo/types.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import type { RunFolder } from '../../runs/runFolder.ts';

const fileOf = (folder: RunFolder, step: number): string => folder.file('rollouts', `step-${step}.safetensors`);

/**
 * Writes a step atomically, and deletes the oldest ones if there are more than `config.trainer.keepRollouts`. Throws InputError if the step
 * cannot be written.
 */
export async function keepStep(
  folder: RunFolder,
  config: TrainConfig,
  step: number,
  samples: readonly Sample[],
  inputs: StepInputs,
): Promise<void> {
  const { keepRollouts } = config.trainer;
  const name = { step, run: config.name, config: settingsHash(config) };
  await folder.files.write(fileOf(folder, step), await encodeStep(name, samples, inputs));
  if (typeof keepRollouts === 'number') await forget(folder, (kept) => kept <= step - keepRollouts);
}

/** Deletes the stored steps for whose numbers `which` returns true. */
export async function forget(folder: RunFolder, which: (step: number) => boolean): Promise<void> {
  for (const step of (await keptSteps(folder)).filter(which)) await folder.files.remove(fileOf(folder, step));
}

/** Returns the numbers of the stored steps, in ascending order. */
export async function keptSteps(folder: RunFolder): Promise<number[]> {
  const names = await folder.files.list(folder.file('rollouts'));
  const steps = names.flatMap((name) => /^step-(\d+)\.safetensors$/.exec(name)?.[1] ?? []).map(Number);
  return steps.sort((a, b) => a - b);
}

/** Reads a stored step. Throws InputError if the file is damaged, or if its content is another step than its name says. */
export async function readKept(folder: RunFolder, step: number): Promise<KeptStep> {
  const file = fileOf(folder, step);
  const kept = await decodeStep(await folder.files.read(file), file);
  if (kept.step === step) return kept;
  throw new InputError(`${file} holds step ${kept.step}. Give it the name step-${kept.step}.safetensors again.`);
}
