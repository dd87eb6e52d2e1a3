/** The lesson that the address names: short screens over the page, each with a condition that the page checks. */

import { computed, effect, signal } from '@preact/signals';
import { bet, fall } from './bet.ts';
import { history, stepsDone } from './page.ts';
import { asked } from './rules.ts';
import { active } from './stage.ts';
import { pickedGroup } from './tries/shown.ts';

interface Screen {
  title: string;
  /** About 40 words. */
  text: string;
  /** The thing to press. */
  press: string;
  /** The condition that completes the screen, as text. */
  waits: string;
  /** Reads signals. */
  isDone: () => boolean;
}

const CHEAT = 'reward guessing';
/** If the share of problems solved falls below this, the model counts as having cheated the reward. */
const LOW = 0.2;
const STEPS_TO_WAIT = 15;

const SCREENS: readonly Screen[] = [
  {
    title: 'A model that learns',
    text: 'This small model answers word problems. In each step it tries every problem several times. GRPO compares the tries at a problem, makes the better ones more likely, and the others less. The large numbers show the share that it solves.',
    press: 'Start',
    waits: 'step 5',
    isDone: () => active.value && stepsDone.value >= 5,
  },
  {
    title: 'What is paid',
    text: 'The task pays 1 for a correct answer, and 0 for any other. Correct tries have an arrow up, the others an arrow down. Choose a problem that has both, and read its best and its worst try.',
    press: 'a problem, above the tries',
    waits: 'a chosen problem',
    isDone: () => pickedGroup.value !== undefined,
  },
  {
    title: 'Your prediction',
    text: 'Now another rule pays: any number in the right format earns something, even a wrong one, and a short answer earns more. The page still counts correct answers by itself. What will happen to the share solved?',
    press: `"${CHEAT}", then up, same or down`,
    waits: 'your guess',
    isDone: () => bet.value?.name === CHEAT,
  },
  {
    title: 'Two curves part',
    text: 'The run is paid by the new rule. Every 5 steps it answers 32 held-out problems, and the task counts the correct ones. Watch both curves: reward is what you pay for, pass@1 is what you want.',
    press: '"Back to live", above the tries',
    waits: `share solved below ${LOW}, or ${STEPS_TO_WAIT} steps`,
    isDone: () => {
      const { from, to } = fall.value ?? {};
      return from !== undefined && to !== undefined && (to.value < LOW || to.step - from.step >= STEPS_TO_WAIT);
    },
  },
  {
    title: 'It did what was paid',
    text: 'Compare the result with your prediction. The model did not misunderstand: it found what earns most with the least work. This is called reward hacking. Take the rule back, and the next step pays for correct answers again.',
    press: '"Undo", in the notice',
    waits: "the task's own reward",
    isDone: () => history.value.length > 0 && asked.value.reward === undefined,
  },
];

/** Lessons by their name in the address. */
export const LESSONS: Readonly<Record<string, readonly Screen[]>> = { cheat: SCREENS };

/** The screens of the lesson; undefined without a lesson. */
export const screens = signal<readonly Screen[] | undefined>(undefined);
const place = signal(0);
const passed = signal(false);

/** The screen that is shown, its number from 1, and whether its check has passed. A screen whose check has passed once stays passed. */
export const screen = computed(
  () => screens.value && { ...screens.value[place.value], number: place.value + 1, passed: passed.value },
);

/** Starts a lesson, and watches the condition of its current screen. */
export function beginLesson(name: string): void {
  screens.value = LESSONS[name];
  effect(() => {
    if (screens.value?.[place.value].isDone()) passed.value = true;
  });
}

/** Shows the next screen. */
export function nextScreen(): void {
  if (!screens.value || !passed.value || place.value + 1 === screens.value.length) return;
  passed.value = false;
  place.value++;
}
