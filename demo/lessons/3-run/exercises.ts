/** Exercises of lesson 3: a right answer, and a sentence for each of three usual mistakes. */

import { mean } from '../../../src/grpo/advantages/index.ts';
import { short } from '../../../src/ui/format.ts';
import type { ChoiceExercise, Exercise, LoopExercise, MatchExercise } from '../kit/checks.ts';
import text from './run.js?raw';
import { end, last, RATES, RECORDED, runsOf, start } from './stills.ts';

const COMPARE = "    const advantages = computeAdvantages('grpo', { rewards, groups, masks }); // compare\n";
const NUDGE = '    const { gradNorm } = await learner.optimStep({ lr }); // nudge\n';
const GRADIENT = "    const { metrics } = await learner.forwardBackward(rows, 'grpo');\n";

/** Returns the text of the loop with its two central lines replaced. */
const loop = (compare: string, nudge: string): string => text.replace(COMPARE, compare).replace(NUDGE, nudge);

/** Number of steps of the loop of exercise 3.1. */
const STEPS = 12;
/** Adam moves a weight by about the learning rate, 0.001, and by sqrt(10) times that at most. */
const MOST_MOVED = 0.04;

const SUMS = 'In a group the advantages should add up to 0.';
const PUSHED = `Every try was pushed up, the bad ones a little less. ${SUMS}`;
const UPSIDE_DOWN =
  'In a group, tries with a higher reward got a lower advantage: the worse ones were pushed up. Look at the sign and the order.';
const STILL = `${STEPS} gradients, 0 updates: nothing moved. The gradient waits until the optimizer takes its step.`;
const EACH = `More than ${STEPS} updates in ${STEPS} steps. A step for each try follows one try at a time, and the mean over one try is not the mean over the batch.`;

const COMPLETE: LoopExercise = {
  kind: 'loop',
  id: '3.1',
  title: 'Complete the loop',
  task:
    'Two lines are missing: the one that compares, and the one that nudges. Write them. computeAdvantages takes a method and { rewards, groups, ' +
    'masks }. learner.optimStep takes { lr } and returns { gradNorm }. The check trains 12 steps in this tab, so it needs WebGPU.',
  start: loop('    // compare: const advantages = ...\n', '    // nudge: const { gradNorm } = ...\n'),
  checkpoint: 'checkpoints/reverse-text',
  steps: STEPS,
  answer: text,
  hint: 'Look at the file of figure 3.1: the words "compare" and "nudge" stand at the end of the two lines.',
  why: 'In each group the advantages add up to 0, and each step makes one update from the mean over all its tries.',
  judge: ({ gradients, updates, largestSum, lowest, upsideDown, moved }) => {
    if (updates > STEPS) return EACH;
    if (gradients > 0 && updates === 0)
      return gradients === STEPS ? STILL : `${gradients} gradients, 0 updates: nothing moved.`;
    if (!(largestSum <= 1e-3))
      return `${lowest < 0 ? `${SUMS} Each try is compared with its own group.` : PUSHED} Yours add up to as much as ${short(largestSum)}.`;
    if (upsideDown > 0) return UPSIDE_DOWN;
    if (updates < STEPS)
      return `${updates} updates where ${STEPS} were due. Each step draws, scores, compares and nudges once.`;
    if (moved > MOST_MOVED)
      return `A weight moved by ${short(moved)} in ${STEPS} steps, and by ${MOST_MOVED} at most with the rate of the loop. Pass { lr } to optimStep.`;
    return moved > 0 ? undefined : 'The optimizer took its steps, but no weight moved. Is every advantage 0?';
  },
  wrong: [
    { given: loop('    const advantages = rewards;\n', NUDGE), says: PUSHED },
    { given: loop(COMPARE, '    const gradNorm = 0;\n'), says: STILL },
    {
      given: loop(COMPARE, '    const gradNorm = 0;\n').replace(
        GRADIENT,
        "    let metrics = {};\n    for (const row of rows) {\n      ({ metrics } = await learner.forwardBackward([row], 'grpo'));\n      await learner.optimStep({ lr });\n    }\n",
      ),
      says: EACH,
    },
  ],
};

/** Seed of the curves in exercise 3.2. MATCHED: the learning rate of each curve, A, B, C. */
export const MATCH_SEED = 2;
export const MATCHED = [1e-2, 1e-4, 1e-3];

const nameOf = (lr: number): string => RATES.find((rate) => rate.lr === lr)!.name;
const seedOf = (lr: number) => runsOf(lr).find(({ seed }) => seed === MATCH_SEED)!;
const letters = ['A', 'B', 'C'];

/**
 * Returns a sentence about the chart in which the curve differs most clearly from a curve of the chosen learning rate, with both values.
 */
function apart(k: number, chosen: number): string {
  const [is, would] = [seedOf(MATCHED[k]), seedOf(chosen)];
  const pair = [MATCHED[k], chosen];
  const [measure, values] = pair.includes(1e-2)
    ? ['entropy', [is.entropy, would.entropy]]
    : ['reward', [is.reward, would.reward]];
  return `Run ${letters[k]} is not ${nameOf(chosen)}. Look at the ${measure}: ${letters[k]} ends at ${short(last(values[0]))}, and ${nameOf(chosen)} ends at ${short(last(values[1]))}.`;
}

const right = MATCHED.map(nameOf);

const MATCH: MatchExercise = {
  kind: 'match',
  id: '3.2',
  title: 'Which rate is which?',
  task: `Three runs of seed ${MATCH_SEED}, with the learning rates 0.0001, 0.001 and 0.01. Which is which?`,
  items: letters.map((letter) => `Run ${letter}`),
  options: RATES.map(({ name }) => ({ id: name, label: name })),
  answer: right,
  hint: 'A small rate changes little in 60 steps. A rate that is too large changes everything in a few.',
  why: 'The rate that breaks the model shows in the reward at once. Of the other two, the smaller has moved less: its entropy is higher.',
  judge: (chosen) => {
    const k = right.findIndex((name, i) => chosen[i] !== name);
    return k === -1 ? undefined : apart(k, RATES.find(({ name }) => name === chosen[k])!.lr);
  },
  wrong: [
    { given: [right[1], right[0], right[2]], says: apart(0, MATCHED[1]) },
    { given: [right[2], right[1], right[0]], says: apart(0, MATCHED[2]) },
    { given: [right[0], right[2], right[1]], says: apart(1, MATCHED[2]) },
  ],
};

const norm = short(mean(RECORDED.runs[0].gradNorm));

const SAYS = {
  rate: `The reward went from ${short(start)} to ${short(end)}: the model moves.`,
  done: 'The loss is 0 at step 1 as well, before anything was learned.',
  wrong: `A loss that did nothing would have a gradient norm of 0. Here it is ${norm}, mean of 60 steps.`,
};

const CHOOSE: ChoiceExercise = {
  kind: 'choice',
  id: '3.3',
  title: 'Loss 0.000, and the reward rises',
  task: `The loss of the run in figure 3.1 is 0.000 at every step. Its reward rose from ${short(start)} to ${short(end)}. Which sentence is right?`,
  options: [
    { id: 'rate', label: 'The learning rate is too low.' },
    { id: 'cancel', label: 'The losses of a group cancel each other. Their gradients do not.' },
    { id: 'done', label: 'The run has converged.' },
    { id: 'wrong', label: 'The loss is broken.' },
  ],
  answer: 'cancel',
  hint: 'The advantages of a group add up to 0. What is their sum, weighted equally?',
  why: 'Each try adds its advantage to the loss, and the advantages add up to 0. But each pulls at other tokens.',
  judge: (chosen) => (chosen === 'cancel' ? undefined : SAYS[chosen as keyof typeof SAYS]),
  wrong: [
    { given: 'rate', says: SAYS.rate },
    { given: 'done', says: SAYS.done },
    { given: 'wrong', says: SAYS.wrong },
  ],
};

export const EXERCISES: readonly Exercise[] = [COMPLETE, MATCH, CHOOSE];
