/**
 * Data of lesson 6, the numbers in its text, and its pictures for readers without JavaScript. Vite puts the pictures into the page's HTML.
 */

import {
  pairedDifference,
  passInterval,
  type PassInterval,
  permutationTest,
} from '../../../src/report/passInterval.ts';
import {
  attempts,
  bestOf,
  bestOfEqual,
  DRAWS,
  evaluations,
  type Layout,
  layouts,
  leastP,
  ofRate,
  type Outcomes,
  passDifference,
  passOf,
  rateOf,
  resampled,
  shownDifference,
  TRIES,
  unpacked,
} from './evidence.ts';
import { intervalsPlot, type PassCurve, passPlot, ratesPlot, scoresPlot, seedsPlot } from './plots.ts';
import data from './recorded.json' with { type: 'json' };

/** A model with recorded outcomes: the shipped one, or the one that was trained with a seed. */
export interface Model {
  id: string;
  name: string;
  outcomes: Outcomes;
}

const { stages, ...about } = data;

export const SOURCE = `Recorded: ${about.command}, commit ${about.commit}, ${about.adapter}, ${about.date}: 256 held-out problems, ${TRIES} tries of each.`;

export const MODELS: readonly Model[] = stages.map(({ steps, seed, outcomes }) => ({
  id: `${seed}`,
  name: seed === 0 ? 'before training' : `after ${steps} steps, seed ${seed}`,
  outcomes: unpacked(outcomes),
}));

/** START: the shipped model. TRAINED: the first trained model. */
export const [START, TRAINED] = MODELS;

/** Final pass@1 of the runs of docs/lab/results.md, "Algorithms compared": problems solved of 256, from the worst seed to the best. */
export const ALGORITHMS: readonly { name: string; solved: readonly number[] }[] = [
  { name: 'grpo', solved: [242, 250, 252] },
  { name: 'dr_grpo', solved: [245, 249, 251] },
  { name: 'dapo', solved: [248, 252, 256] },
  { name: 'gspo', solved: [247, 249, 251] },
  { name: 'cispo', solved: [245, 246, 246] },
  { name: 'sapo', solved: [231, 250, 251] },
];
const PROBLEMS = 256;

export const RUNS = ALGORITHMS.map(({ name, solved }) => ({ name, passes: solved.map((one) => one / PROBLEMS) }));
export const ALGORITHMS_SOURCE =
  'webgrpo compare configs/gsm8k-tool.yaml --seeds 3 trainer.totalTrainingSteps=40 trainer.testFreq=10, commit bab728c, lavapipe: docs/lab/results.md.';

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
export const three = (value: number): string => value.toFixed(3);
export const percent = (share: number): string => `${Math.round(100 * share)}%`;
export const span = ({ low, high }: PassInterval): string => `${three(low)} to ${three(high)}`;

/** Describes figure 6.1. */
export const ratesInWords = (problems: number, rate: number, held: number): string =>
  `With ${problems} problems the interval of a rate of ${three(rate)} is ${span(ofRate(rate, problems))}. The intervals of ${held} of ${DRAWS} evaluations hold the true rate. Two models must differ by ${three(shownDifference(rate, problems))} to be told apart.`;

/** Describes figure 6.2. */
export const layoutsInWords = (all: readonly Layout[]): string => {
  const { problems, tries, byProblem, naive, heldByProblem, heldNaive } = all.at(-1)!;
  return `${problems} problems with ${tries} tries: ${span(byProblem)} by problem, and ${span(naive)} if tries were problems. In ${DRAWS} such evaluations the first held the true rate ${heldByProblem} times, the second ${heldNaive} times.`;
};

export const layoutRows = (all: readonly Layout[]) =>
  all.map((one) => ({ ...one, name: `${one.problems} x ${one.tries}` }));

/** Returns pass@k from 1 to 32 with its band. */
export function passCurve({ id, outcomes }: Model, className: string): PassCurve {
  const points = Array.from({ length: TRIES }, (_, i) => {
    const { low, high } = passInterval(attempts(outcomes, i + 1));
    return { k: i + 1, pass: passOf(outcomes, i + 1), low, high };
  });
  return { name: id === START.id ? 'before' : 'after', className, points };
}

/** Describes figure 6.3 at one k, for a screen reader. */
export function passInWords(after: Model, k: number): string {
  const { mean: gain, low, high } = passDifference(START.outcomes, after.outcomes, k);
  const shown = low > 0 ? 'Training helped.' : high < 0 ? 'Training cost something.' : 'No difference is shown.';
  const [before, now] = [START, after].map(({ outcomes }) => three(passOf(outcomes, k)));
  return `With ${k === 1 ? 'one try' : `${k} tries`} ${before} of the problems are solved before training and ${now} after: a difference of ${three(gain)} (${three(low)} to ${three(high)}). ${shown}`;
}

/** Returns the smallest k at which the trained model solves fewer problems than the shipped one; undefined if it never does. */
export const crossing = (after: Model): number | undefined =>
  Array.from({ length: TRIES }, (_, i) => i + 1).find((k) => passOf(after.outcomes, k) < passOf(START.outcomes, k));

/** Describes figure 6.4. */
export function scoresInWords({ outcomes }: Model, problems: number, count: number): string {
  const scores = evaluations(outcomes, problems);
  const best = Math.max(...scores.slice(0, count));
  return `The best of ${count} evaluations reads ${three(best)}. On average the best of ${count} reads ${three(bestOf(scores, count))}, and the weights have ${three(rateOf(outcomes.slice(0, problems)))}.`;
}

/** Describes figure 6.5. */
export function seedsInWords([a, b]: readonly (typeof RUNS)[number][], seeds: number): string {
  const p = permutationTest(a.passes, b.passes);
  const least = leastP(seeds);
  return `${a.name} ${three(mean(a.passes))}, ${b.name} ${three(mean(b.passes))}: p = ${p.toFixed(2)} by a permutation test. With ${seeds} seeds a side p cannot be below ${least.toFixed(least < 0.01 ? 4 : 3)}.`;
}

const pairs = RUNS.flatMap((a, i) => RUNS.slice(i + 1).map((b) => permutationTest(a.passes, b.passes)));
const rate = rateOf(TRAINED.outcomes);
const spread = layouts(TRAINED.outcomes, 1);
const eightProblems = spread.at(-1)!;
const cross = crossing(TRAINED);
const lost = pairedDifference(attempts(TRAINED.outcomes, TRIES), attempts(START.outcomes, TRIES));

/** Final pass@1 of seeds 1 and 2 of the default recipe (docs/lab/results.md), as text with their intervals. */
export const TWO_SEEDS = [251, 244].map((right) => {
  const one = ofRate(right / PROBLEMS, PROBLEMS);
  return `${three(one.mean)} (${span(one)})`;
});

/** Numbers in the lesson's text, by their name in the HTML. */
export const NUMBERS: Readonly<Record<string, string>> = {
  ...Object.fromEntries(RUNS.map(({ name, passes }) => [`mean-${name}`, three(mean(passes))])),
  'show-64': three(shownDifference(0.95, 64)),
  'show-256': three(shownDifference(0.95, 256)),
  'show-1024': three(shownDifference(0.95, 1024)),
  held: `${eightProblems.heldByProblem}`,
  naive: `${eightProblems.heldNaive}`,
  draws: `${DRAWS}`,
  'start-1': three(passOf(START.outcomes, 1)),
  'start-32': three(passOf(START.outcomes, TRIES)),
  'after-1': three(passOf(TRAINED.outcomes, 1)),
  'after-32': three(passOf(TRAINED.outcomes, TRIES)),
  lost: `${three(lost.mean)} (${span(lost)})`,
  unsolved: `${TRAINED.outcomes.filter((tries) => !tries.includes(1)).length}`,
  cross: cross === undefined ? 'none' : `${cross}`,
  best: three(bestOfEqual(0.95, PROBLEMS, 8)),
  'p-least': Math.min(...pairs).toFixed(2),
  'p-three': leastP(3).toFixed(1),
  'p-four': three(leastP(4)),
};

const still = resampled(TRAINED.outcomes, 64);
const scores = evaluations(TRAINED.outcomes, PROBLEMS);

/** Pictures as HTML, by the number of their figure. */
export const STILLS: Readonly<Record<string, string>> = {
  '6.1': ratesPlot(
    { rates: still.rates, truth: rate, expected: ofRate(rate, 64), own: [] },
    ratesInWords(64, rate, still.held),
  ),
  '6.2': intervalsPlot(layoutRows(spread), rate, layoutsInWords(spread)),
  '6.3': passPlot([passCurve(START, 'curve-b'), passCurve(TRAINED, 'curve-a')], 1, passInWords(TRAINED, 1)),
  '6.4': scoresPlot(scores, 8, rate, scoresInWords(TRAINED, PROBLEMS, 8)),
  '6.5': seedsPlot(RUNS, ['dapo', 'sapo'], seedsInWords([RUNS[2], RUNS[5]], 3)),
};
