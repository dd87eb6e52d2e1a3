/** Tries of the steps since the page was opened. Older ones are in the saved run. */

import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { savedRuns } from '../../storage/saved.ts';
import { shownRun } from '../page.ts';
import { forgetAnswers } from './comparison.ts';

/** Maximum number of steps whose tries stay in memory. */
const MOST = 50;

const seen = new Map<number, readonly LoggedRollout[]>();

/** Keeps the tries of a step in memory. */
export function keepTries(of: readonly LoggedRollout[]): void {
  seen.set(of[0].step, of);
  for (const step of seen.keys()) if (seen.size > MOST) seen.delete(step);
}

/** Drops all tries in memory, and the answers to held-out problems. */
export function forgetTries(): void {
  seen.clear();
  forgetAnswers();
}

/** Returns the tries of a step; empty if they were not kept. */
export async function triesOf(step: number): Promise<readonly LoggedRollout[]> {
  const known = seen.get(step);
  if (known || shownRun.value === undefined) return known ?? [];
  return (await (await savedRuns())?.tries(shownRun.value, step)) ?? [];
}
