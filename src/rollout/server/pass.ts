/** One pass over the model: prefill rows, then decode steps, then one read of the slots' states. */

import type { RunningJob } from './job.ts';
import type { GpuTimes, PassTimes } from './turnClock.ts';

export interface Pass {
  /** Jobs that draw tokens in the pass, and how many each may draw. */
  decoding: { job: RunningJob; tokens: number }[];
  /** Those of `decoding` that were prefilled by an earlier pass. */
  wereDecoding: ReadonlySet<RunningJob>;
  /** Jobs whose context is not complete after the pass. */
  prefilling: RunningJob[];
  prefillRows: number;
  decodeRows: number;
  /** 0 where the pass only prefills or checks guesses. */
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

/** Tells the clock of each job that is still running what the pass took. */
export function timeTurns(pass: FinishedPass, running: ReadonlySet<RunningJob>): void {
  const { decoding, wereDecoding, prefilling, times } = pass;
  for (const { job } of decoding) if (running.has(job)) job.clock?.pass(times, !wereDecoding.has(job));
  for (const job of prefilling) if (running.has(job)) job.clock?.pass(times, false);
}
