/** Tries of the steps since the page was opened. Older ones are in the saved run. */

import { effect, signal } from '@preact/signals';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { savedRuns } from '../../storage/saved.ts';
import { shownRun, tries } from '../page.ts';

/** Maximum number of steps whose tries stay in memory. */
const MOST = 50;

/** Tries of the first step that the page has seen of a run. */
export const firstTries = signal<readonly LoggedRollout[]>([]);

effect(() => {
  const [now, first] = [tries.value, firstTries.peek()];
  const step = now.at(0)?.step;
  if (step === undefined || first.length === 0 || step <= first[0].step) firstTries.value = now;
});

const seen = new Map<number, readonly LoggedRollout[]>();

/** Keeps the tries of a step in memory. */
export function keepTries(of: readonly LoggedRollout[]): void {
  seen.set(of[0].step, of);
  for (const step of seen.keys()) if (seen.size > MOST) seen.delete(step);
}

/** Drops all tries. */
export function forgetTries(): void {
  seen.clear();
  firstTries.value = [];
}

/** Returns the tries of a step; empty if they were not kept. */
export async function triesOf(step: number): Promise<readonly LoggedRollout[]> {
  const known = seen.get(step);
  if (known || shownRun.value === undefined) return known ?? [];
  return (await (await savedRuns())?.tries(shownRun.value, step)) ?? [];
}
