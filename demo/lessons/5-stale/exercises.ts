/** Exercises of lesson 5: a right answer, and a sentence for each of three usual mistakes. */

import type { CodeExercise, Exercise, MatchExercise } from '../kit/checks.ts';
import { agesInWords, agesOf, PIPELINES, tokensOf } from './stills.ts';
import { effectiveShare, truncatedWeights } from './weights.ts';

const named = (name: string) => PIPELINES.find((pipeline) => pipeline.name === name)!;

/** Pipelines of the histograms A, B, C. */
export const HISTOGRAMS = ['one-step-off', 'on-policy', 'fully-async'].map(named);

const ELSEWHERE: Readonly<Record<string, string>> = {
  'on-policy': 'Its tokens have no age but 0: it draws a batch, trains on it, and only then draws the next.',
  'one-step-off': 'It draws one batch ahead. From its second step on every token is one step old.',
  'fully-async': 'It starts half a step ahead. At most half of the groups that a step takes were left over.',
};

const right = HISTOGRAMS.map(({ name }) => name);

const MATCH: MatchExercise = {
  kind: 'match',
  id: '5.1',
  title: 'Which pipeline is which?',
  task: 'The ages of all tokens that three runs trained on, without their first step. Which pipeline drew them?',
  items: ['Histogram A', 'Histogram B', 'Histogram C'],
  options: PIPELINES.map(({ name }) => ({ id: name, label: name })),
  answer: right,
  hint: 'When is a batch drawn, and how many updates come between drawing it and training on it?',
  why: `On-policy never waits with a batch, and one-step-off waits with each. The tokens of fully-async were drawn ${agesInWords(agesOf(named('fully-async')))}.`,
  judge: (chosen) => {
    const k = right.findIndex((name, i) => chosen[i] !== name);
    return k === -1 ? undefined : `Histogram ${'ABC'[k]} is not ${chosen[k]}. ${ELSEWHERE[chosen[k]]}`;
  },
  wrong: [
    { given: [right[1], right[0], right[2]], says: `Histogram A is not on-policy. ${ELSEWHERE['on-policy']}` },
    { given: [right[2], right[1], right[0]], says: `Histogram A is not fully-async. ${ELSEWHERE['fully-async']}` },
    { given: [right[0], right[0], right[2]], says: `Histogram B is not one-step-off. ${ELSEWHERE['one-step-off']}` },
  ],
};

/** Tries whose tokens the check weighs. */
const TRIES = 60;
const CAP = 2;
const { drawn, now } = tokensOf(16);
const CALLS = drawn.slice(0, TRIES).map((own, i) => [now[i], own, CAP]);
const LOG_PROBS = { drawn: drawn.slice(0, TRIES), now: now.slice(0, TRIES) };
const flat = (weights: readonly ArrayLike<number>[]): number[] => weights.flatMap((own) => Array.from(own));
const TRUE = flat(truncatedWeights(LOG_PROBS, CAP));
const UNCUT = flat(truncatedWeights(LOG_PROBS));
const INVERSE = UNCUT.map((weight) => 1 / weight);
const BY_TRY = flat(truncatedWeights(LOG_PROBS, CAP, 'sequence'));

const percent = (share: number): string => `${Math.round(100 * share)}%`;
const WRONG = {
  inverse: 'Upside down: a token that grew likelier has a weight above 1.',
  uncut: `No cap: one token of ${TRUE.length} weighs as much as ${Math.round(Math.max(...UNCUT))} with weight 1.`,
  sequence: `That is the product over the try. Here each token has its own weight. By try the tokens count as ${percent(effectiveShare(BY_TRY))} of their number, by token as ${percent(effectiveShare(TRUE))}.`,
};

const near = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((value, i) => Math.abs(value - b[i]) < 1e-9 * Math.max(1, Math.abs(b[i])));

function judge(results: readonly unknown[]): string | undefined {
  const bad = results.findIndex((one, i) => !Array.isArray(one) || one.length !== drawn[i].length);
  if (bad >= 0)
    return `For a try of ${drawn[bad].length} tokens weights returned ${JSON.stringify(results[bad])}. Return a list with a weight for each token.`;
  const given = results.flatMap((one) => (one as unknown[]).map(Number));
  if (near(given, TRUE)) return undefined;
  if (near(given, UNCUT)) return WRONG.uncut;
  if (near(given, BY_TRY)) return WRONG.sequence;
  if ([INVERSE, INVERSE.map((value) => Math.min(value, CAP))].some((wrong) => near(given, wrong))) return WRONG.inverse;
  const k = given.findIndex((value, i) => !(Math.abs(value - TRUE[i]) < 1e-9));
  const digits = Math.abs(given[k] - TRUE[k]) < 0.01 ? 10 : 4;
  return `Token ${k + 1} of all has log-probs ${now.flat()[k]} now and ${drawn.flat()[k]} when drawn. Its weight is ${TRUE[k].toPrecision(digits)}, and yours is ${Number(given[k].toPrecision(digits))}.`;
}

const code = (body: string) => `export function weights(now, drawn, cap) {\n${body}\n}\n`;

const WEIGHTS: CodeExercise = {
  kind: 'code',
  id: '5.2',
  title: 'Write the weights of a correction',
  task: `now and drawn are the log-probs of a try's tokens, under the weights that are trained and under those that drew them. Return a weight for each token: how much likelier it is now, but at most cap. The check takes ${TRIES} tries of the run with delay 16.`,
  name: 'weights',
  start: `// A log-prob is the logarithm of a probability.\nexport function weights(now, drawn, cap) {\n  return now.map((logProb, t) => 1);\n}\n`,
  answer: code('  return now.map((logProb, t) => Math.min(Math.exp(logProb - drawn[t]), cap));'),
  hint: 'The quotient of two probabilities is exp of the difference of their logarithms.',
  why: 'It is token-level truncated importance sampling, as rolloutIs: token has it.',
  calls: CALLS,
  judge,
  wrong: [
    {
      given: code('  return now.map((logProb, t) => Math.min(Math.exp(drawn[t] - logProb), cap));'),
      says: WRONG.inverse,
    },
    { given: code('  return now.map((logProb, t) => Math.exp(logProb - drawn[t]));'), says: WRONG.uncut },
    {
      given: code(
        '  const sum = now.reduce((so, logProb, t) => so + logProb - drawn[t], 0);\n  return now.map(() => Math.min(Math.exp(sum), cap));',
      ),
      says: WRONG.sequence,
    },
  ],
};

export const EXERCISES: readonly Exercise[] = [MATCH, WEIGHTS];
