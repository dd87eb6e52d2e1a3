/** A run that loses its device continues by itself on a fresh one, from its newest checkpoint. */

import { setTimeout as rest } from 'node:timers/promises';
import { DeviceLostError, NoAdapterError } from '../../errors.ts';
import { newestCheckpoint } from '../../runs/checkpointFolder.ts';
import type { RunFolder } from '../../runs/runFolder.ts';
import { say } from './progress.ts';

/** One device's share of a run; what is not readonly, the run notes as it goes. */
export interface Attempt {
  /** The checkpoint folder to resume from; undefined = from the beginning. */
  readonly resumeFrom: string | undefined;
  /** The run folder is there already, by an attempt that lost its device. */
  readonly again: boolean;
  /** The run folder is this run's. */
  ownsFolder: boolean;
  /** The last step that was done, also before a resume; -1 = none. */
  step: number;
  /** A person has asked it to stop. */
  stopping: boolean;
}

export const firstAttempt = (resumeFrom: string | undefined): Attempt => ({
  resumeFrom,
  again: false,
  ownsFolder: false,
  step: -1,
  stopping: false,
});

/** Losses in a row, with no new step in between, that end a run. */
const MOST_LOSSES = 3;

/**
 * Runs `attempt`, and again on a fresh device whenever its own is lost. A step depends on the checkpoint and the config alone, so
 * that the run comes out as one that lost none. Rejects with the last loss where a device after the other is lost.
 */
export async function onFreshDevices<T>(
  folder: RunFolder,
  resumeFrom: string | undefined,
  attempt: (attempt: Attempt) => Promise<T>,
): Promise<T> {
  let [farthest, losses] = [-1, 0];
  let now = firstAttempt(resumeFrom);
  for (;;) {
    try {
      return await attempt(now);
    } catch (error) {
      const isLoss = error instanceof DeviceLostError || (losses > 0 && error instanceof NoAdapterError);
      if (!isLoss || now.stopping) throw error;
      const { again, ownsFolder, step } = now;
      losses = step > farthest ? 1 : losses + 1;
      farthest = Math.max(farthest, step);
      const newest = ownsFolder ? await newestCheckpoint(folder.files, folder.path, 'trainer', say) : undefined;
      const from = newest ?? resumeFrom;
      const when = step < 0 ? 'before the first step was done' : `after step ${step}`;
      if (losses === MOST_LOSSES) {
        const kept = from === undefined ? 'no checkpoint was saved' : `the newest checkpoint is ${from}`;
        say(`the GPU device was lost ${losses} times without a new step in between, ${when}: giving up; ${kept}`);
        throw error;
      }
      say(`the GPU device was lost ${when} (${error.message}); on a fresh one from ${from ?? 'the beginning'}`);
      await rest(1000 * (losses - 1)); // a driver that restarts takes a moment
      now = {
        resumeFrom: from,
        again: again || ownsFolder,
        ownsFolder: again || ownsFolder,
        step: -1,
        stopping: false,
      };
    }
  }
}
