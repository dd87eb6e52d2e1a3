/** What comes back from a pass: tokens for those who read along, and answers of sequences that have ended. */

import { STATE_WIDTH } from '../decode/decoder.ts';
import { generationOf, type Job, keepPiece, looksAtTokens, readAlong as readTokens, type Running } from './job.ts';
import type { Schedule } from './schedule.ts';
import type { Generation } from '../types.ts';

/** A job that draws in a pass. */
export interface Rider {
  job: Running;
  /** Tokens that it may draw in the pass. */
  tokens: number;
}

/** Hands back every rider that stopped, was aborted, or is full. Returns how many, and how many tokens were drawn. */
export async function collect(
  s: Schedule,
  aboard: Rider[],
  state: Uint32Array,
  steps: number,
): Promise<{ drawn: number; ended: number }> {
  const flagOf = ({ sequence }: Running) => state[sequence.slot * STATE_WIDTH + 3];
  const live = aboard.map(({ job }) => job);
  let drawn = 0;
  for (const { job, tokens } of aboard) {
    const now = state[job.sequence.slot * STATE_WIDTH + 2];
    drawn += now - job.drawn;
    job.drawn = now;
    job.inTheAir -= tokens;
  }
  await readAlong(
    s,
    live.filter((job) => looksAtTokens(job) || s.speculation),
  );
  const ended = live.filter((job) => flagOf(job) !== 0 || job.stopString !== undefined || job.aborted);
  s.pace.learnEnds(ended.length, live.length, steps);
  await keepDrawn(s, ended);
  for (const job of ended) {
    job.sequence.parkedAt = s.passes;
    s.running.delete(job);
    const reason = flagOf(job) === 1 ? 'stop' : flagOf(job) === 2 ? 'length' : 'aborted';
    answer(s, job, job.stopString === undefined ? reason : 'stop_string');
  }
  return { drawn, ended: ended.length };
}

/** Shows jobs what they have drawn since they last looked. */
async function readAlong(s: Schedule, jobs: Running[]): Promise<void> {
  if (jobs.length === 0) return;
  const parts = jobs.map(({ sequence: { slot }, known, drawn }) => {
    return { slot, from: known.length, count: drawn - known.length };
  });
  const drawn = await s.decoder.readDrawn(parts);
  jobs.forEach((job, i) => {
    const before = job.known.length;
    readTokens(job, drawn[i].tokenIds);
    job.request.onTokens?.(job.known.slice(before));
    s.speculation?.learn(job, before, drawn[i].tokenIds.length, s.stats);
  });
  s.speculation?.passEnded();
}

/** Reads what jobs have drawn since they got their slots. */
export async function keepDrawn(s: Schedule, jobs: Running[]): Promise<void> {
  if (jobs.length === 0) return;
  const drawn = await s.decoder.readDrawn(jobs.map(({ sequence: { slot }, drawn: count }) => ({ slot, count })));
  jobs.forEach((job, i) => {
    const { tokenIds } = drawn[i];
    s.stats.generatedTokens += tokenIds.length - 1; // the first was counted by the prefill pass
    // Every drawn token but the last has been fed, so its keys and values are in the slot.
    for (const id of tokenIds.subarray(0, -1)) job.sequence.ownTokens.push(id);
    keepPiece(job, drawn[i], s.version);
  });
}

export function answer(s: Schedule, job: Job, stopReason: Generation['stopReason']): void {
  s.jobs.delete(job.request.requestId);
  job.resolve(generationOf(job, stopReason));
}
