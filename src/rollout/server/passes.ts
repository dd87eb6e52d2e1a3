/** What a pass computes: new context first, then decode steps of all live sequences, or one check of guesses. */

import { type Running, tokensLeft } from './job.ts';
import { planPrefill } from './prefill.ts';
import type { Schedule } from './schedule.ts';
import { STEPS_BETWEEN_GUESSES } from '../speculative/speculation.ts';

/** Records one pass over new context tokens, at most maxBatchedTokens of them; false if there were none. */
export function prefillPass(s: Schedule): boolean {
  const pending = [...s.running].filter((r) => r.phase === 'prefill');
  if (pending.length === 0) return false;
  const { rows, draws, ready } = planPrefill(s.decoder, pending, s.stats);
  if (rows.tokens.length === 0) throw new Error('A prefill pass has no rows; the scheduler cannot make progress.');
  for (const job of ready) job.phase = 'decode';
  maskCalls(s, ready);
  s.decoder.prefill(rows, draws);
  s.stats.prefillTokens += rows.tokens.length;
  s.stats.generatedTokens += draws.length;
  s.firstDraws += draws.length;
  return true;
}

/** Records as many decode steps as pay before the next look at the flags. Returns how many. */
export function decodeSteps(s: Schedule): number {
  const live = [...s.running].filter((r) => r.phase === 'decode' && isReady(s, r) && tokensLeft(r) > 0);
  if (live.length === 0) return 0;
  maskCalls(s, live);
  if (verifyPass(s, live)) return 0;
  // Neighbours in a batch that share a prompt read the same keys.
  live.sort((a, b) => a.sequence.prefix.index - b.sequence.prefix.index || a.sequence.slot - b.sequence.slot);
  s.decoder.setLive(live.map((r) => r.sequence.slot));
  const most = live.some((job) => job.guided) ? 1 : s.speculation ? STEPS_BETWEEN_GUESSES : Infinity;
  const steps = Math.min(s.pace.steps(live.map(tokensLeft), s.inTheAir > 0), most);
  for (let step = 0; step < steps; step++) {
    s.decoder.decodeStep();
    if (step === 0 && steps > 1) s.decoder.submit(); // the device starts while the others are recorded
  }
  s.stats.decodeSteps += steps;
  s.stats.liveRows += steps * live.length;
  return steps;
}

/** Who must know its last token before the next sits the pass out that has drawn its first: nobody has read it yet. */
function isReady(s: Schedule, job: Running): boolean {
  return job.known.length > 0 || !(s.speculation || job.guided);
}

/** Says what the next draw may be where a tool call has to stay valid. */
function maskCalls(s: Schedule, jobs: Running[]): void {
  for (const job of jobs) {
    const { guided, sequence } = job;
    if (guided) s.decoder.setMask(sequence.slot, guided.guide.mask(guided.state, tokensLeft(job)));
  }
}

/** Records a pass that checks guesses; false where there are none, or too few. */
function verifyPass(s: Schedule, live: Running[]): boolean {
  const room = s.decoder.sizes.verifyRows ?? s.decoder.sizes.maxSlots;
  const planned = s.speculation?.plan(live, s.decoder, room);
  if (!planned) return false;
  s.decoder.verify(planned.rows, planned.rounds);
  s.stats.decodeSteps++;
  return true;
}
