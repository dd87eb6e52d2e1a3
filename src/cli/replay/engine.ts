/** Opens the engine of `webgrpo replay`, with the weights at which a stored step is replayed. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, DeviceLostError, InputError, isA, OutOfMemoryError } from '../../errors.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { checkpointSteps, loadTrainerCheckpoint } from '../../runs/checkpointFolder.ts';
import type { RunFolder } from '../../runs/runFolder.ts';
import { engineSizes } from '../../workers/localEngine.ts';
import { disk } from '../files.ts';
import { loadWithAdapter } from '../run/checkpoints.ts';
import { loraSettings, openEngine, withChatTemplate } from '../run/session.ts';
import type { CommandEngine } from '../process/io.ts';
import { say } from '../run/progress.ts';
import { withWarmStart } from '../run/warmStart.ts';

/** Where weights come from: a checkpoint folder of a run, or the model from which the run started. */
export interface WeightsPlace {
  /** Checkpoint folder; undefined = the model from which the run started. */
  checkpoint: string | undefined;
  /** Description of the weights, for tables and pages. */
  words: string;
}

/**
 * Selects the weights at which a step is replayed. `--checkpoint` gives a step of the run or a folder; the default is the run's newest
 * checkpoint before the step's update. Throws InputError.
 */
export async function weightsFor(
  folder: RunFolder,
  step: number,
  flag: string | boolean | undefined,
): Promise<WeightsPlace> {
  const saved = await checkpointSteps(disk, folder.path);
  const words = (at: number) => {
    const name = at === 0 ? 'the start model of the run' : `checkpoints/step-${at}`;
    return at === step - 1 ? `${name}, the weights before its update` : `${name}, not the weights before its update`;
  };
  const ofStep = (at: number) => ({ checkpoint: at === 0 ? undefined : folder.checkpoint(at), words: words(at) });
  if (typeof flag !== 'string') return ofStep(saved.findLast((at) => at < step) ?? 0);
  const named = [0, ...saved].find((at) => String(at) === flag);
  if (named !== undefined) return ofStep(named);
  if (existsSync(flag)) return { checkpoint: flag, words: flag };
  const known = [0, ...saved].join(', ');
  throw new InputError(
    `--checkpoint is "${flag}", which is neither a folder nor a checkpoint of ${folder.path}. It has checkpoints of steps ${known} (0 = the start model).`,
  );
}

/**
 * Opens an engine that only trains, with the run's start model (or the checkpoint itself, if the run trains all weights). Call `useWeights`
 * to load a checkpoint.
 */
export async function openReplayEngine(config: TrainConfig, { checkpoint }: WeightsPlace): Promise<CommandEngine> {
  const warm = await withWarmStart(config);
  const { path, loraAdapterPath, customChatTemplate } = warm.model;
  const trainsAdapter = config.model.loraRank > 0 || loraAdapterPath !== undefined;
  // A run that trains all weights can be replayed without its start model, which can be missing.
  const base =
    checkpoint === undefined || trainsAdapter || !existsSync(join(checkpoint, 'config.json')) ? path : checkpoint;
  const model = await withChatTemplate(await loadWithAdapter(base, loraAdapterPath), customChatTemplate);
  const {
    rollout: _,
    judge: __,
    speculative: ___,
    withReference: ____,
    withoutReference: _____,
    lowerToFit: ______,
    ...sizes
  } = engineSizes(config);
  const lora = loraSettings(config, model.adapter);
  const optimizer = { name: 'SignSGD' } as const; // has no state: a replay computes gradients and updates no weight
  return openEngine(model, { ...sizes, ...(lora && { lora }), optimizer, use: 'train' });
}

/** Loads the weights of a checkpoint into an engine. Throws InputError if the checkpoint is damaged, or belongs to another model. */
export async function useWeights(engine: CommandEngine, { checkpoint }: WeightsPlace): Promise<void> {
  if (checkpoint === undefined) return;
  const { weights } = await loadTrainerCheckpoint(disk, checkpoint, say);
  try {
    await engine.model.importWeights(weights);
  } catch (error) {
    if (isA(error, DeviceLostError) || isA(error, OutOfMemoryError)) throw error;
    throw new InputError(
      `${checkpoint} belongs to another model than the run: ${describe(error)} Use a checkpoint of the run.`,
      { cause: error },
    );
  }
}
