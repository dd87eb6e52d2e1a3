/** Tries of the first step that this page has seen of a run, to show beside the last. */

import { effect, signal } from '@preact/signals';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { tries } from '../../state/page.ts';

export const firstTries = signal<readonly LoggedRollout[]>([]);

effect(() => {
  const [now, first] = [tries.value, firstTries.peek()];
  const step = now[0]?.step;
  const isEarlier = step === undefined || first.length === 0 || step <= first[0].step;
  if (isEarlier) firstTries.value = now;
});
