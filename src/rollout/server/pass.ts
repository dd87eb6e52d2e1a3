/** One pass over the model: prefill rows, then decode steps, then one read of the slots' states. */

import type { RunningJob } from './job.ts';
import type { GpuTimes, PassTimes } from './turnClock.ts';

export interface Pass {
  /** Jobs that sample tokens in the pass, and the maximum number of tokens for each job. */
  decoding: { job: RunningJob; tokens: number }[];
  /** Jobs of `decoding` that were prefilled by an earlier pass. */
  wereDecoding: ReadonlySet<RunningJob>;
  /** Jobs whose context is not complete after the pass. */
  prefilling: RunningJob[];
  prefillRows: number;
  decodeRows: number;
  /** 0 if the pass only prefills or checks guesses. */
  steps: number;
  startedAt: number;
  stateRead: Promise<{ state: Uint32Array; gpuTimes?: GpuTimes | undefined }>;
}

/** A pass that the device has computed. */
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
