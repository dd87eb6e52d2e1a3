/** Tests the lessons of the page: every exercise knows its right answer and three mistakes, and every number in the text is recomputed. */

import { readFileSync } from 'node:fs';
import { expect, test, vi } from 'vitest';
import * as groupExercises from '../../demo/lessons/1-groups/exercises.ts';
import * as groups from '../../demo/lessons/1-groups/stills.ts';
import * as runExercises from '../../demo/lessons/3-run/exercises.ts';
import * as run from '../../demo/lessons/3-run/stills.ts';
import {
  check,
  type Checked,
  checkCode,
  checkLoopFacts,
  type CodeExercise,
  type Exercise,
} from '../../demo/lessons/kit/checks.ts';
import { advantagesBy, METHODS, type Method, triesOf } from '../../demo/lessons/kit/recordings.ts';
import { runLoop, type LoopStep } from '../../demo/lessons/kit/runLoop.ts';
import * as learners from '../../src/extensions/learner/index.ts';
import * as library from '../../src/index.ts';
import { readCheckpoint } from '../../src/node.ts';
import * as tasks from '../../src/tasks/index.ts';
import { scriptedLoopEngine } from '../scripted/loopEngine.ts';

const LESSONS = [
  { name: '1-groups', ...groupExercises, ...groups },
  { name: '3-run', ...runExercises, ...run },
].map((lesson) => ({ ...lesson, html: readFileSync(`demo/lessons/${lesson.name}/index.html`, 'utf8') }));

const EXERCISES = LESSONS.flatMap((lesson): readonly Exercise[] => lesson.EXERCISES);
const { RECORDED, NAMED_STEPS } = groups;

/** Limit of code that ends, on a machine with much other work. */
const BUSY_MS = 60_000;

const reverseText = readCheckpoint('checkpoints/reverse-text');

/** Runs a loop's text as the lesson's worker does, on a scripted engine. */
const facts = async (
  text: string,
  { steps, onStep = () => {} }: { steps: number; onStep?: (step: LoopStep) => void },
) => {
  const model = await reverseText;
  return runLoop({
    ...{ text, onStep, options: { steps }, mostUpdates: steps },
    library: { webgrpo: library, 'webgrpo/learner': learners, 'webgrpo/tasks': tasks },
    addressOf: (script) => `data:text/javascript,${encodeURIComponent(script)}`,
    openEngine: async () => scriptedLoopEngine(model),
  });
};

async function checked(exercise: Exercise, given: Exercise['answer']): Promise<Checked> {
  if (exercise.kind === 'code') return checkCode(exercise, given as string, BUSY_MS);
  if (exercise.kind === 'loop') return checkLoopFacts(exercise, await facts(given as string, exercise));
  return check(exercise, given);
}

const title = 'exercise $id accepts its answer, and tells three mistakes apart';
test.each(EXERCISES)(title, { timeout: 4 * BUSY_MS }, async (exercise) => {
  expect(await checked(exercise, exercise.answer)).toEqual({ ok: true, says: `Right. ${exercise.why}` });
  expect(exercise.wrong).toHaveLength(3);
  for (const { given, says } of exercise.wrong)
    expect(await checked(exercise, given)).toEqual({
      ok: false,
      // A loop's sentence can end with a number that its engine decides.
      says: exercise.kind === 'loop' ? expect.stringContaining(says) : says,
    });
  expect(new Set(exercise.wrong.map(({ says }) => says)).size).toBe(3);
});

const write = EXERCISES[0] as CodeExercise;

test.each([
  ['export function advantages() {\n  for (;;);\n}', /^it ran longer than 0\.5 s/],
  ['export function advantages(rewards) {\n  return rewards.mean();\n}', /^Line 2: TypeError: not a function/],
  ['export function advantages(rewards) {\n  return rewards +;\n}', /^Line 2: SyntaxError/],
  ['export const other = 1;', /there is no "export function advantages"/],
  ['export const advantages = () => 1;', /returned 1\. Return a list with one number for each of the 8 tries/],
  ['export const advantages = () => [1];', /returned 1 numbers\. Return a list/],
  [
    'export const advantages = (r) => r;',
    /^For the rewards \[1, 0, .*yours gives \[1, 0, .*The library gives \[2\.475, /,
  ],
])('code that fails is told: %j', async (code, says) => {
  expect(await checkCode(write, code, /for \(;;\)/.test(code) ? 500 : BUSY_MS)).toMatchObject({
    ok: false,
    says: expect.stringMatching(says),
  });
});

test('the exercise starts from code that is not yet right', async () => {
  expect((await checkCode(write, write.start, BUSY_MS)).ok).toBe(false);
});

test.each(LESSONS)('every number in the text of $name is the one of the recorded data', ({ html, NUMBERS }) => {
  const found = [...html.matchAll(/<data data-number="([\w-]+)">([^<]*)<\/data>/g)];
  const numbers: Readonly<Record<string, string>> = NUMBERS;
  expect(found.map(([, id, text]) => [id, text])).toEqual(found.map(([, id]) => [id, numbers[id]]));
  expect(new Set(found.map(([, id]) => id))).toEqual(new Set(Object.keys(NUMBERS)));
});

test.each(LESSONS)(
  'the text of $name has every still picture, prediction and exercise, and at most 900 words',
  ({ html, STILLS, EXERCISES: own }) => {
    const numbers = (pattern: RegExp) => [...html.matchAll(pattern)].map(([, number]) => number);
    expect(numbers(/<!-- still ([\d.]+) -->/g)).toEqual(Object.keys(STILLS));
    expect(numbers(/data-figure="([\d.]+)"/g)).toEqual(Object.keys(STILLS));
    expect(numbers(/data-exercise="([\d.]+)"/g)).toEqual(own.map(({ id }) => id));
    const [, prose] = /<main[^>]*>([^]*)<\/main>/.exec(html)!;
    const words = prose.replace(/<!--[^]*?-->|<[^>]*>/g, ' ').match(/[\w.]+/g)!;
    expect(words.length).toBeLessThanOrEqual(900);
  },
);

test('the recorded tries have the advantages that the library computes from their rewards', () => {
  expect(RECORDED.groups).toHaveLength(16);
  for (const group of RECORDED.groups) {
    const advantages = advantagesBy(
      'grpo',
      group.tries.map(({ score }) => score ?? NaN),
    );
    // The log has the mean over a try's tokens, which rounds the last bit.
    group.tries.forEach(({ advantage }, i) => expect(advantage).toBeCloseTo(advantages[i], 12));
  }
  expect(NAMED_STEPS.every((step) => RECORDED.run.steps.some(([number]) => number === step))).toBe(true);
  expect(triesOf(RECORDED.groups[1], 1)[0]).toMatchObject({ step: 1, group: 1, promptMessages: 1, problem: 'train-1' });
});

test('the program of the lesson prints the advantages of the figure', async () => {
  const table = vi.spyOn(console, 'table').mockImplementation(() => {});
  vi.spyOn(console, 'log').mockImplementation(() => {});
  await import('../../demo/lessons/1-groups/twin.js');
  const printed = table.mock.calls.map(([rows]) => Object.values(rows as Record<string, number[]>));
  const expected = [0, 1].map((group) => {
    const { tries } = RECORDED.groups[group];
    const [rewards, tokens] = [tries.map(({ score }) => score ?? NaN), tries.map((one) => one.responseTokens)];
    const methods = Object.keys(METHODS) as Method[];
    const rounded = methods.map((method) => advantagesBy(method, rewards, tokens).map((a) => Number(a.toFixed(3))));
    return [rewards, ...rounded];
  });
  vi.restoreAllMocks();
  expect(printed).toEqual(expected);
});

const loop = readFileSync('demo/lessons/3-run/run.js', 'utf8');

test('the loop of lesson 3 has at most 35 lines, and reports every step with its tries and times', async () => {
  expect(loop.trimEnd().split('\n').length).toBeLessThanOrEqual(35);
  const steps: LoopStep[] = [];
  expect(await facts(loop, { steps: 3, onStep: (step) => steps.push(step) })).toMatchObject({
    ...{ gradients: 3, updates: 3, rows: 3 * 256 },
    largestSum: expect.closeTo(0, 4),
  });
  expect(steps.map(({ step }) => step)).toEqual([1, 2, 3]);
  for (const { reward, tries, seconds } of steps) {
    expect(reward).toBeGreaterThan(0);
    expect(tries).toHaveLength(16);
    expect(tries.every(({ problem, answer }) => [...problem].reverse().join('') === answer)).toBe(true);
    for (const part of Object.values(seconds)) expect(part).toBeGreaterThanOrEqual(0);
  }
});

test.each([
  [
    'a missing name',
    loop.replace('const learner', 'const teacher'),
    /^Line \d+: ReferenceError: learner is not defined$/,
  ],
  ['a thrown error', loop.replace('    const rows', '    null.x;\n    const rows'), /^Line \d+: TypeError: /],
  [
    'no train',
    'export const config = {};',
    /^The text has no "export const config" or no "export async function train"/,
  ],
  ['a name that the library lacks', loop.replace('{ Learner }', '{ Teacher }'), /SyntaxError: .*Teacher/],
  ['bad input', loop.replace('(prompts, 16,', '([], 16,'), /sample: prompts is \[\]\./],
])('a loop with %s is told', async (_, text, says) => {
  await expect(facts(text, { steps: 1 })).rejects.toThrow(says);
});

test('the recorded runs of lesson 3 are complete, and their losses cancel', () => {
  expect(run.RECORDED.runs.map(({ lr, seed }) => `${lr} ${seed}`).sort()).toEqual(
    run.RATES.flatMap(({ lr }) => [1, 2, 3].map((seed) => `${lr} ${seed}`)).sort(),
  );
  for (const { reward, loss } of run.RECORDED.runs) {
    expect(reward).toHaveLength(run.STEPS);
    expect(loss.every((value) => value === null || Math.abs(value) < 1e-4)).toBe(true);
  }
});
