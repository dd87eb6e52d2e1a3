/** A pass from its launch to what is done with what it brings back; the next one may be launched in between. */

import type { Running } from './job.ts';
import { decodeSteps, prefillPass } from './passes.ts';
import { collect, type Rider } from './readBack.ts';
import type { Schedule } from './schedule.ts';
import type { GpuTimes } from './turnClock.ts';

export interface Flight {
  /** Those that draw in it, whose first draw is behind or in it. */
  riders: Rider[];
  /** Riders that had been prefilled before. */
  drawing: ReadonlySet<Running>;
  /** Those whose context is not complete after it. */
  filling: Running[];
  steps: number;
  prefilled: boolean;
  prefillRows: number;
  decodeRows: number;
  started: number;
  look: Promise<{ state: Uint32Array; gpuTimes?: GpuTimes | undefined }>;
}

/** Sends off what there is to compute; undefined where that is nothing that a pass in the air does not compute already. */
export function launch(s: Schedule): Flight | undefined {
  const started = performance.now();
  const before = { prefill: s.stats.prefillTokens, decode: s.stats.liveRows };
  const drawing = new Set([...s.running].filter((job) => job.phase === 'decode'));
  const prefilled = prefillPass(s);
  if (prefilled) s.decoder.submit();
  const sent = performance.now();
  const steps = decodeSteps(s);
  if (s.inTheAir > 0 && !prefilled && steps === 0) return undefined;
  s.passes++;
  if (s.landed) {
    // Steps after the first are recorded while the device works.
    const waited = (prefilled ? sent : started + (performance.now() - started) / Math.max(1, steps)) - s.landed.at;
    s.pace.learnWait(waited, s.landed.nothingEnded && !prefilled);
  }
  const riders = [...s.running]
    .filter((job) => job.phase === 'decode')
    .map((job) => ({ job, tokens: drawing.has(job) ? steps : steps + 1 }));
  for (const { job, tokens } of riders) job.inTheAir += tokens;
  const filling = [...s.running].filter((job) => job.phase === 'prefill');
  const { prefillTokens, liveRows } = s.stats;
  const prefillRows = prefillTokens - before.prefill;
  const decodeRows = liveRows - before.decode + (s.speculation?.rowsVerified() ?? 0);
  const look = s.decoder.readState();
  look.catch(() => {}); // heard by who lands it, unless a pass before it has failed as well
  s.inTheAir++;
  return { riders, drawing, filling, steps, prefilled, prefillRows, decodeRows, started, look };
}

/** Waits for a pass, hands back what has ended, and learns what it took. */
export async function land(s: Schedule, flight: Flight): Promise<void> {
  const { state, gpuTimes } = await flight.look;
  s.inTheAir--;
  const at = performance.now();
  const { riders, drawing, filling, prefilled, steps, prefillRows, decodeRows } = flight;
  const started = Math.max(flight.started, s.landed?.at ?? 0); // the device had the pass before to do
  if (!prefilled && steps > 0) s.pace.learnTime(at - started, steps);
  const times = { started, ended: at, prefillRows, decodeRows, ...(gpuTimes && { gpu: gpuTimes }) };
  // Not those that ended in the pass before, or lost their slots since; they get others after this pass at the earliest.
  const aboard = riders.filter(({ job }) => s.running.has(job));
  for (const { job } of aboard) job.clock?.pass(times, !drawing.has(job));
  for (const job of filling) if (s.running.has(job)) job.clock?.pass(times, false);
  const { drawn, ended } = await collect(s, aboard, state, steps);
  s.landed = { at, nothingEnded: ended === 0 };
  if (!prefilled) s.speculation?.learnPass(steps === 0 ? 'verify' : 'plain', performance.now() - flight.started, drawn);
}
