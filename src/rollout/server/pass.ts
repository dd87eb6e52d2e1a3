/** One pass over the model: first prefill rows, then decode steps, then one read-back of the slots' states. */

import type { RunningJob } from './job.ts';
import type { GpuTimes, PassTimes } from './turnClock.ts';

export interface Pass {
  /** Jobs that sample tokens in the pass, each with the maximum number of its tokens. */
  decoding: { job: RunningJob; tokens: number }[];
  /** Jobs of `decoding` whose prefill was in an earlier pass. */
  wereDecoding: ReadonlySet<RunningJob>;
  /** Jobs whose context is not complete after the pass. */
  prefilling: RunningJob[];
  prefillRows: number;
  decodeRows: number;
  /** Number of decode steps; 0 if the pass only prefills or only checks guesses. */
  steps: number;
  startedAt: number;
  stateRead: Promise<{ state: Uint32Array; gpuTimes?: GpuTimes | undefined }>;
}

/** A pass that the device has computed, with its results. */
export interface FinishedPass extends Pass {
  /** [slots, STATE_WIDTH], see slotState. */
  state: Uint32Array;
  times: PassTimes;
}

/** Reports the time of the pass to the clock of each job that is still running. */
export function timeTurns(pass: FinishedPass, running: ReadonlySet<RunningJob>): void {
  const { decoding, wereDecoding, prefilling, times } = pass;
  for (const { job } of decoding) if (running.has(job)) job.clock?.pass(times, !wereDecoding.has(job));
  for (const job of prefilling) if (running.has(job)) job.clock?.pass(times, false);
}
