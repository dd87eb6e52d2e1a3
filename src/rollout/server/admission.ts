/** Who gets a slot: waiting requests by arrival, at the cost of others where the policy says so. */

import type { Job, Running } from './job.ts';
import { answer, keepDrawn } from './readBack.ts';
import type { Schedule } from './schedule.ts';

export function enqueue(s: Schedule, job: Job): void {
  let at = s.waiting.length;
  while (at > 0 && s.waiting[at - 1].arrival > job.arrival) at--;
  s.waiting.splice(at, 0, job);
}

/** Gives waiting jobs their slots and prefixes, first come first served, preempting where the policy says so. */
export async function admit(s: Schedule, grace: number): Promise<void> {
  const victims = parkedVictims(s, grace);
  for (const job of [...s.waiting]) {
    while (job.phase === 'waiting' && !job.aborted && !tryStart(s, job)) {
      if (victims.length > 0) evict(s, victims.shift()!);
      else if (!(await preemptFor(s, job))) break;
    }
  }
  s.waiting = s.waiting.filter((job) => job.phase === 'waiting');
}

function tryStart(s: Schedule, job: Job): boolean {
  const { requestId, promptLength, key, sampling } = job.request;
  const sequence = s.table.acquire(requestId, job.contextIds.subarray(0, promptLength));
  if (!sequence) return false;
  const own = job.contextIds.subarray(promptLength);
  const known = commonLength(own, sequence.ownTokens);
  // The last context token is always run again: its row gives the logits of the first draw.
  job.next = Math.min(known, Math.max(0, own.length - 1));
  job.phase = 'prefill';
  job.clock?.enter('prefill');
  sequence.ownTokens = [...own];
  sequence.parkedAt = undefined;
  s.stats.cachedTokens += job.next;
  s.decoder.setSlot(sequence.slot, {
    prefixStart: s.decoder.prefixStart(sequence.prefix.index),
    promptLength,
    ownStart: s.decoder.ownStart(sequence.slot),
    contextIds: job.contextIds,
    drawnBefore: job.contextIds.length - job.request.contextIds.length,
    key,
    sampling,
  });
  s.running.add(Object.assign(job, { sequence }));
  return true;
}

/** Samples whose last turn ended at least `grace` passes ago, latest arrived first. */
function parkedVictims(s: Schedule, grace: number): string[] {
  if (s.preemption === 'off' || s.waiting.length === 0 || s.table.freeSlots > 0) return [];
  const before = s.passes - grace;
  const parked = s.table.parked().filter(({ id, since }) => since <= before && !s.jobs.has(id));
  return parked.map(({ id }) => id).sort((a, b) => s.arrivals.get(b)! - s.arrivals.get(a)!);
}

function evict(s: Schedule, requestId: string): void {
  s.table.drop(requestId);
  s.stats.preemptions++;
}

/** Takes the slot of the latest running sample that arrived after this one; false if there is none. */
async function preemptFor(s: Schedule, job: Job): Promise<boolean> {
  if (s.preemption !== 'latest') return false;
  const latest = [...s.running].reduce<Running | undefined>(
    (last, r) => (r.arrival > (last?.arrival ?? job.arrival) ? r : last),
    undefined,
  );
  if (!latest) return false;
  s.stats.preemptions++;
  await sendBack(s, [latest]);
  return true;
}

/** Puts running jobs back to waiting: they keep what they have drawn, and lose their slots. */
export async function sendBack(s: Schedule, jobs: Running[]): Promise<void> {
  const drawing = jobs.filter((job) => job.phase === 'decode');
  await keepDrawn(s, drawing);
  for (const job of jobs) {
    s.running.delete(job);
    s.table.drop(job.request.requestId);
    job.phase = 'waiting';
    job.clock?.enter('queue');
    if (job.aborted) answer(s, job, 'aborted');
    else enqueue(s, job);
  }
}

function commonLength(a: Uint32Array, b: number[]): number {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}
