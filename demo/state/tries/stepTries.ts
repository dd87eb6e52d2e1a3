/** Tries of the steps that the page has seen since it was opened; older ones are in the saved run. */

import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { savedRuns } from '../../storage/saved.ts';
import { shownRun } from '../page.ts';

/** Steps whose tries stay in memory. */
const MOST = 50;

const seen = new Map<number, readonly LoggedRollout[]>();

export function keepTries(tries: readonly LoggedRollout[]): void {
  seen.set(tries[0].step, tries);
  for (const step of seen.keys()) if (seen.size > MOST) seen.delete(step);
}

export const forgetTries = (): void => seen.clear();

/** None where they are not kept. */
export async function triesOf(step: number): Promise<readonly LoggedRollout[]> {
  const known = seen.get(step);
  if (known || shownRun.value === undefined) return known ?? [];
  return (await (await savedRuns())?.tries(shownRun.value, step)) ?? [];
}
