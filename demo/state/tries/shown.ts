/** Selects the step whose tries are shown: the newest, until the visitor picks a problem or an older step, or holds the current one. */

import { batch, computed, effect, signal } from '@preact/signals';
import type { LoggedRollout } from '../../../src/runs/rollouts.ts';
import { tokensOf } from '../../training/tokens.ts';
import { shownStep, stepsDone, tries } from '../page.ts';

type Following = 'newest' | 'step' | 'nothing';

/** Which tries are added: those of the newest step, those of the shown step, or none. */
const following = signal<Following>('newest');

/** The tries on screen; empty = none yet. */
export const shownTries = signal<readonly LoggedRollout[]>([]);

/** The problem that the visitor picked; undefined = the page chooses. */
export const pickedGroup = signal<number | undefined>(undefined);

/** The try whose tokens are open. */
export const looked = signal<LoggedRollout | undefined>(undefined);

/** True if newer tries can exist that are not shown. */
export const isHeld = computed(() => following.value !== 'newest');

const stepOf = (of: readonly LoggedRollout[]) => of.at(0)?.step;

effect(() => {
  const newest = tries.value;
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

/** Follows the newest step again. */
export function showNewest(): void {
  batch(() => {
    [following.value, pickedGroup.value, shownTries.value] = ['newest', undefined, tries.peek()];
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
