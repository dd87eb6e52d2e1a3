/** Selects the step whose tries are shown: the newest, until the visitor picks a problem or an older step, or holds the current one. */

import { batch, computed, effect, signal } from '@preact/signals';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { tokensOf } from '../../training/tokens.ts';
import { growing, shownStep, stepsDone, tries } from '../page.ts';

type Following = 'newest' | 'step' | 'nothing';

/** Which newly scored tries appear on the screen: those of every new step, only those of the step already on screen, or none. */
const following = signal<Following>('newest');

/** The tries on screen; empty = none yet. */
export const shownTries = signal<readonly LoggedRollout[]>([]);

/** The problem that the visitor picked; undefined = the page chooses. */
export const pickedGroup = signal<number | undefined>(undefined);

/** The try whose tokens are inspected. */
export const looked = signal<LoggedRollout | undefined>(undefined);

/** True if the shown tries may not be the newest ones. */
export const isHeld = computed(() => following.value !== 'newest');

const stepOf = (of: readonly LoggedRollout[]) => of.at(0)?.step;

/** Tries of the last complete step, which stay on the screen until the next step is complete; empty = none of this run. */
let complete: readonly LoggedRollout[] = [];

effect(() => {
  const newest = tries.value;
  if (!growing.value) complete = newest;
  const mode = newest.length === 0 ? 'newest' : following.peek();
  const sameStep = stepOf(newest) === stepOf(shownTries.peek());
  if (mode === 'newest') showNewest();
  else if (mode === 'step' && sameStep) shownTries.value = newest;
});

/** The step on screen, if it is an older one: the visitor moved to it, or holds it while the run continues. */
export const olderStep = computed(() => {
  const step = shownStep.value ?? (isHeld.value ? stepOf(shownTries.value) : undefined);
  return step === undefined || step >= stepsDone.value ? undefined : step;
});

/** Follows the run again: shows the last complete step, or the growing first one. */
export function showNewest(): void {
  batch(() => {
    const newest = growing.peek() && complete.length > 0 ? complete : tries.peek();
    [following.value, pickedGroup.value, shownTries.value] = ['newest', undefined, newest];
    shownStep.value = undefined;
  });
}

/** Shows the tries of an older step. */
export function showStep(older: readonly LoggedRollout[]): void {
  batch(() => {
    [following.value, pickedGroup.value, shownTries.value] = ['nothing', undefined, older];
  });
}

/** Shows another problem of the shown step, and holds that step. */
export function pickGroup(group: number): void {
  hold('step');
  pickedGroup.value = group;
}

/** Holds the shown tries while the visitor reads or selects them. */
export function hold(how: Exclude<Following, 'newest'> = 'nothing', group = pickedGroup.peek()): void {
  batch(() => {
    if (following.peek() !== 'nothing') following.value = how;
    pickedGroup.value = group;
  });
  const [first] = shownTries.peek();
  void (first && tokensOf(first)?.step.numbers); // the next step drops the numbers that these are computed from
}
