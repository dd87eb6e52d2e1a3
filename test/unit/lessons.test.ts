/**
 * Tests the lessons of the page: every exercise accepts its right answer and recognises three mistakes, and every number in the text is
 * recomputed.
 */

import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { VNode } from 'preact';
import { expect, onTestFinished, test, vi } from 'vitest';
import * as adapters from '../../demo/engine/adapter.ts';
import type { Session } from '../../demo/engine/session.ts';
import * as files from '../../demo/engine/files.ts';
import * as groupExercises from '../../demo/lessons/1-groups/exercises.ts';
import * as groups from '../../demo/lessons/1-groups/stills.ts';
import * as lossExercises from '../../demo/lessons/2-losses/exercises.ts';
import {
  batchTokens,
  curveTokens,
  ownCurve,
  ownOnTokens,
  ratioCurve,
  settingOf,
  tokenGradients,
} from '../../demo/lessons/2-losses/losses.ts';
import { DRAWN, drawnCurve, PUBLISHED } from '../../demo/lessons/2-losses/plots.ts';
import * as losses from '../../demo/lessons/2-losses/stills.ts';
import { authorsOf } from '../../demo/lessons/4-tools/authors.ts';
import * as toolExercises from '../../demo/lessons/4-tools/exercises.ts';
import * as tools from '../../demo/lessons/4-tools/stills.ts';
import * as staleExercises from '../../demo/lessons/5-stale/exercises.ts';
import * as stale from '../../demo/lessons/5-stale/stills.ts';
import { SETTING, timesOf } from '../../demo/lessons/5-stale/times.ts';
import * as weights from '../../demo/lessons/5-stale/weights.ts';
import * as evidence from '../../demo/lessons/6-claims/evidence.ts';
import * as claimExercises from '../../demo/lessons/6-claims/exercises.ts';
import * as claims from '../../demo/lessons/6-claims/stills.ts';
import * as underExercises from '../../demo/lessons/under/exercises.ts';
import { EPS, exactNorm } from '../../demo/lessons/under/judge.ts';
import * as under from '../../demo/lessons/under/stills.ts';
import * as reference from '../../src/extensions/verify/reference/ops.ts';
import { SUMMED_LOSSES } from '../../src/extensions/learner/losses.ts';
import { Rule } from '../../src/extensions/modules/index.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/index.ts';
import { RULE_PROGRAMS } from '../../src/extensions/modules/rulePrograms.ts';
import { policyLossSpec } from '../../src/grpo/update/lossSpec.ts';
import { pairedDifference, permutationTest, POLICY_LOSSES, resolveTrainConfig } from '../../src/index.ts';
import * as runExercises from '../../demo/lessons/3-run/exercises.ts';
import * as run from '../../demo/lessons/3-run/stills.ts';
import {
  check,
  type Checked,
  checkCode,
  checkLoopFacts,
  checkResults,
  type CodeExercise,
  type Exercise,
  type PlainExercise,
} from '../../demo/lessons/kit/checks.ts';
import { loopWork } from '../../demo/lessons/kit/loop.ts';
import { advantagesBy, METHODS, type Method, triesOf } from '../../demo/lessons/kit/recordings.ts';
import { runLoop, type LoopStep } from '../../demo/lessons/kit/runLoop.ts';
import * as learners from '../../src/extensions/learner/index.ts';
import * as library from '../../src/index.ts';
import { readCheckpoint } from '../../src/node.ts';
import * as tasks from '../../src/tasks.ts';
import { describe } from '../../src/errors.ts';
import { scriptedLoopEngine } from '../scripted/loopEngine.ts';
import { scriptedEngine } from '../scriptedRuns.ts';
import { stub } from '../stub.ts';
import { ANSWERS } from './lessonAnswers.ts';

/** Names of the lessons, each with its exercises, the numbers in its text, and its pictures. */
const LESSONS = [
  { name: '1-groups', ...groupExercises, ...groups },
  { name: '2-losses', ...lossExercises, ...losses },
  { name: '3-run', ...runExercises, ...run },
  { name: '4-tools', ...toolExercises, ...tools },
  { name: '5-stale', ...staleExercises, ...stale },
  { name: '6-claims', ...claimExercises, ...claims },
  { name: 'under', ...underExercises, ...under },
].map((lesson) => ({ ...lesson, html: readFileSync(`demo/lessons/${lesson.name}/index.html`, 'utf8') }));

/** All exercises but those that need a GPU (test/gpu/lessonRun.node.test.ts). */
const EXERCISES = LESSONS.flatMap((lesson): readonly Exercise[] => lesson.EXERCISES).filter(
  ({ kind }) => kind !== 'kernel',
);
const { RECORDED, NAMED_STEPS } = groups;

/** Time limit for code that terminates, generous enough for a busy machine. */
const BUSY_MS = 60_000;

const reverseText = readCheckpoint('checkpoints/reverse-text');

const addressOf = (script: string) => `data:text/javascript,${encodeURIComponent(script)}`;

/** Runs a loop's text as the lesson's worker does, on a scripted engine. */
const facts = async (
  text: string,
  { steps, onStep = () => {} }: { steps: number; onStep?: (step: LoopStep) => void },
) => {
  const model = await reverseText;
  return runLoop({
    ...{ text, onStep, options: { steps }, mostUpdates: steps },
    library: { webgrpo: library, 'webgrpo/learner': learners, 'webgrpo/tasks': tasks },
    addressOf,
    openEngine: async () => scriptedLoopEngine(model),
  });
};

const isFull = process.env['FULL_TESTS'] === '1';
const isCode = (exercise: Exercise): exercise is CodeExercise => exercise.kind === 'code';

/** Checks code as `checkCode` does, but without a sandbox, in a millisecond. */
async function checkOutside(exercise: CodeExercise, code: string): Promise<Checked> {
  const { name, calls, tokens } = exercise;
  const kind = tokens ? 'loss' : 'functions';
  const program = RULE_PROGRAMS[kind].replace(`'./${kind}.js'`, `'${addressOf(code).replaceAll("'", '%27')}'`);
  const { default: rule } = (await import(addressOf(program))) as { default: { run: (input: unknown) => unknown } };
  try {
    const given = rule.run(structuredClone(tokens ?? { name, calls }));
    return checkResults(exercise, tokens ? [given] : (given as unknown[]));
  } catch (error) {
    return { ok: false, says: String(error) };
  }
}

/** Returns a loop with four tries at each of four problems. */
const few = (text: string): string =>
  text.replace('{ length: 16 }', '{ length: 4 }').replace('(prompts, 16,', '(prompts, 4,');

/** Checks code in the sandbox, and loops with all their tries, under --full. */
async function checked(exercise: Exercise, given: Exercise['answer']): Promise<Checked> {
  if (exercise.kind === 'kernel') throw new Error('A kernel needs a GPU.');
  if (exercise.kind === 'code')
    return isFull ? checkCode(exercise, given as string, BUSY_MS) : checkOutside(exercise, given as string);
  const text = given as string;
  if (exercise.kind === 'loop') return checkLoopFacts(exercise, await facts(isFull ? text : few(text), exercise));
  return check(exercise, given);
}

const title = 'exercise $id accepts its answer, and tells three mistakes apart';
test.each(EXERCISES)(title, async (exercise) => {
  expect(await checked(exercise, exercise.answer)).toEqual({ ok: true, says: `Right. ${exercise.why}` });
  expect(exercise.wrong).toHaveLength(3);
  for (const { given, says } of exercise.wrong)
    expect(await checked(exercise, given)).toEqual({
      ok: false,
      // The sentence about a mistake in a loop can end with a number that depends on the engine.
      says: exercise.kind === 'loop' ? expect.stringContaining(says) : says,
    });
  expect(new Set(exercise.wrong.map(({ says }) => says)).size).toBe(3);
});

// The loops of exercise 3.1 take seconds.
test.each(Object.entries(ANSWERS).filter(([id]) => isFull || id !== '3.1'))(
  'exercise %s accepts right answers in other forms, and no other wrong one',
  async (id, { right, wrong }) => {
    const exercise = EXERCISES.find((one) => one.id === id)!;
    const given = async (code: string) =>
      await checked(exercise, exercise.kind === 'loop' ? few(code) : code).catch((error: unknown) => ({
        ok: false,
        says: describe(error),
      }));
    for (const code of right) expect(await given(code), code).toMatchObject({ ok: true });
    for (const [code, says] of wrong)
      expect(await given(code), code).toMatchObject({ ok: false, says: expect.stringMatching(says) });
  },
);

/** Returns every possible answer to an exercise without a text. */
function allAnswers(exercise: Exercise): (string | string[] | number[])[] {
  if (exercise.kind === 'choice') return exercise.options.map(({ id }) => id);
  if (exercise.kind === 'ticks')
    return exercise.options.reduce<string[][]>((sets, { id }) => sets.flatMap((set) => [set, [...set, id]]), [[]]);
  if (exercise.kind === 'match')
    return exercise.items.reduce<string[][]>(
      (lists) => lists.flatMap((list) => exercise.options.map(({ id }) => [...list, id])),
      [[]],
    );
  if (exercise.kind === 'numbers') {
    const values = [-8, -1, -0.875, -0.142_857, -0.14, -0.125, 0, 0.14, 1 / 7, 0.875, 0.9, 1, 2.475, 1e9, -1e-9];
    return values.flatMap((a) => values.map((b) => [a, b]));
  }
  return [];
}

test.each(EXERCISES.filter((one) => !isCode(one) && one.kind !== 'loop'))(
  'of all answers to exercise $id one is right, and every other has its sentence',
  (exercise) => {
    const all = allAnswers(exercise);
    const results = all.map((given) => check(exercise as PlainExercise, given));
    const right = all.filter((_, i) => results[i].ok);
    if (exercise.kind === 'numbers') expect(right.map(([, b]) => Math.abs(Number(b) + 1 / 7) < 0.005)).toContain(true);
    else expect(right.map((one) => [one].flat().toSorted())).toEqual([[exercise.answer].flat().toSorted()]);
    for (const { ok, says } of results) if (!ok) expect(says).toMatch(/^(?!.*(undefined|NaN)).+[.?]$/);
  },
);

test.each(EXERCISES.filter((one) => isCode(one)).slice(0, isFull ? undefined : 1))(
  'code of exercise $id that throws or does not end is told',
  async (exercise) => {
    const { name } = exercise;
    for (const [code, says] of [
      [`export function ${name}() {\n  return first.mean();\n}`, /^Line 2: ReferenceError: .*first/],
      [`export function ${name}() {\n  for (;;);\n}`, /^It ran longer than 0\.2 s/],
    ] as const)
      expect(await checkCode(exercise, code, code.includes('for (;;)') ? 200 : BUSY_MS)).toMatchObject({
        ok: false,
        says: expect.stringMatching(says),
      });
  },
);

test.each(EXERCISES.filter(isCode))('exercise $id starts from code that is not yet right', async (exercise) => {
  expect((await checked(exercise, exercise.start)).ok).toBe(false);
});

const LAST = LESSONS.flatMap((lesson) => lesson.EXERCISES.findLast(isCode) ?? []);
const KINDS = [true, false].flatMap((isLoss) => LAST.find(({ tokens }) => (tokens !== undefined) === isLoss) ?? []);
test.each(isFull ? LAST : KINDS)('the answer of exercise $id is right in the sandbox', async (exercise) => {
  expect(await checkCode(exercise, exercise.answer, BUSY_MS)).toMatchObject({ ok: true });
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
    expect(numbers(/<!-- still ([\w.]+) -->/g)).toEqual(Object.keys(STILLS));
    expect(numbers(/data-figure="([\w.]+)"/g)).toEqual(Object.keys(STILLS));
    expect(numbers(/data-exercise="([\w.]+)"/g)).toEqual(own.map(({ id }) => id));
    expect(numbers(/data-predict="([\w. ]+)"/g)).not.toEqual([]);
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
    // The logged advantage is a mean over the tokens of a try, which can round the last bits.
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

test('the losses of lesson 2 have the numbers that their recipes resolve to', () => {
  for (const name of ['grpo', 'dapo', 'cispo', 'sapo', 'gspo', 'gmpo']) {
    const config = resolveTrainConfig({ name, model: { path: 'gsm8k-tool' }, algorithm: { name } });
    const { loss, spec, aggregation } = settingOf(name);
    expect(loss).toBe(POLICY_LOSSES[config.actor.policyLoss.lossMode]);
    expect(spec.numbers).toEqual(policyLossSpec(config).numbers);
    expect(aggregation).toBe(config.actor.lossAggMode);
  }
});

test('the recorded tokens have ratio 1 before an update, where five losses pull alike', () => {
  const fresh = losses.pullsAfter(losses.RECORDED.groups, 0);
  const [first, ...others] = fresh.map(({ tokens }) =>
    tokens.grad.map((grads, s) => Array.from(grads, (grad, t) => (grad === 0 ? 0 : grad / tokens.weight[s][t]))),
  );
  for (const pulls of others)
    pulls.forEach((row, s) => row.forEach((pull, t) => expect(pull).toBeCloseTo(first[s][t], 12)));
  expect(fresh.every(({ heldShare }) => heldShare === 0)).toBe(true);
  const [held] = losses.pullsAfter(losses.RECORDED.groups, losses.RECORDED.updates.length - 1);
  expect(held.heldShare).toBeGreaterThan(0.05);
});

test('what lesson 2 says of its recorded updates holds', () => {
  const { html } = LESSONS[1];
  const [{ tokens }] = losses.RECORDED.groups[0].tries;
  expect([tokens[losses.STRAY], tokens.slice(losses.STRAY - 2, losses.STRAY + 2).join('')]).toEqual(['-', '53-8']);
  expect(html).toContain('the minus in 53-8, fell');
  const { actor } = parseTrainConfig(readFileSync('configs/gsm8k-tool.yaml', 'utf8'), { source: 'gsm8k-tool.yaml' });
  expect(html).toContain(`its own pull ended at ${1 + actor.clipRatioHigh}, the clip of the recipe`);
});

test('a curve is the loss that a run descends, and an own loss can be drawn with it', async () => {
  const ratios = [0.3, 1, 1.3, 4];
  const token = { logp: Math.log(1.3), oldLogp: 0, advantage: -1, selected: false };
  const sequence = { length: 1, sum: 0, advantageSum: -1 };
  const learned = SUMMED_LOSSES['importance_sampling'].row(settingOf('grpo').spec.numbers, token, sequence);
  const plain = drawnCurve('unclipped', ratios, { ...PUBLISHED, advantage: -1 });
  expect(plain.pull[2]).toBeCloseTo(-learned.grad, 12);
  const rule = await Rule.open('loss', lossExercises.EXERCISES[0].answer as string, BUSY_MS);
  const tokens = curveTokens(ratios, -1, { clipRatioLow: 0.2, clipRatioHigh: 0.28 });
  const own = ownCurve(await rule.run(tokens), -1);
  rule.close();
  const library = ratioCurve('vanilla', { ratios, advantage: -1, clip: { clipRatioHigh: 0.28, clipRatioC: 100 } });
  own.pull.forEach((pull, i) => expect(pull).toBeCloseTo(library.pull[i], 6));
  expect(own.held).toEqual(library.held);
});

test('an own loss pulls the recorded tokens as the library does, if it is the loss of the library', async () => {
  const { groups, updates } = losses.RECORDED;
  const { rows, logProbs } = losses.rowsAfter(groups, updates.length - 1);
  const rule = await Rule.open('loss', lossExercises.EXERCISES[0].answer as string, BUSY_MS);
  const given = await rule.run(batchTokens(rows, logProbs, [0.2, 0.28]));
  rule.close();
  const o = { logProbs, maxResponseLength: losses.MAX_LENGTH };
  const [own, [library]] = [ownOnTokens(rows, given, o), tokenGradients(rows, ['dapo'], o)];
  own.tokens.grad.forEach((grads, s) =>
    grads.forEach((grad, t) => expect(grad).toBeCloseTo(library.tokens.grad[s][t], 7)),
  );
  for (const share of ['heldShare', 'rightShare', 'effectiveShare'] as const)
    expect(own[share]).toBeCloseTo(library[share], 4);
});

test('the program of lesson 2 prints the pulls of its figure', async () => {
  const table = vi.spyOn(console, 'table').mockImplementation(() => {});
  vi.spyOn(console, 'log').mockImplementation(() => {});
  await import('../../demo/lessons/2-losses/twin.js');
  const printed = table.mock.calls.map(([rows]) => rows as Record<string, Record<string, number>>);
  vi.restoreAllMocks();
  for (const [k, advantage] of [1, -1].entries()) {
    expect(Object.keys(printed[k])).toEqual(DRAWN.map(({ name }) => name));
    for (const { id, name } of DRAWN) {
      const ratios = Object.keys(printed[k][name]).map((key) => Number(key.slice(2)));
      const { pull } = drawnCurve(id, ratios, { ...PUBLISHED, advantage });
      expect(ratios).toHaveLength(12);
      Object.values(printed[k][name]).forEach((value, i) => expect(value).toBeCloseTo(pull[i], 3));
    }
  }
});

test('every token of a recorded try has an author, and the shares of the pull add up to 1', () => {
  const [group] = losses.RECORDED.groups;
  const [one] = group.tries;
  const text = (by: string) => one.tokens.filter((_, t) => authorsOf(one)[t] === by).join('');
  expect(text('tool')).toBe('459');
  expect(text('template')).toMatch(/^<tool_response><\/tool_response><\|im_start\|>assistant/);
  expect(text('model').split('<|im_end|>')).toHaveLength(4);
  for (const { by } of Object.values(tools.TRAINED)) {
    const shares = tools.authorShares(group, by);
    expect(Object.values(shares).reduce((a, b) => a + b)).toBeCloseTo(1, 12);
    expect(by.every((author) => shares[author] > 0)).toBe(true);
  }
});

test('the run on tool calls is tested at every step of its prediction, and ends without a right answer', () => {
  expect(tools.CALL_STEPS).toEqual([0, 10, 20, 30, 40]);
  expect(tools.CALL_SHARES[1]).toBeGreaterThan(tools.CALL_SHARES[0]);
  expect(tools.CALL_SHARES.at(-1)).toBeLessThan(0.1);
});

test('the rewards of lesson 4 have three seeds, evaluated after the same steps', () => {
  const stepsOf = ({ heldOut }: Pick<tools.CheatRun, 'heldOut'>) => heldOut.map(([step]) => step);
  for (const run of tools.RECORDED.runs) {
    expect(run.otherSeeds.map(({ seed }) => seed)).toEqual([2, 3]);
    for (const other of run.otherSeeds) expect(stepsOf(other)).toEqual(stepsOf(run));
  }
});

test('turns of the recorded games have the advantages of what was earned from them on, less the mean of the others', () => {
  const rewards = tools.GAMES.map(({ turnRewards }) => turnRewards);
  const toGo = (own: number[], turn: number) => own.slice(turn).reduce((a, b) => a + b, 0);
  const advantages = tools.turnAdvantages(rewards);
  rewards.forEach((own, s) =>
    own.forEach((_, turn) => {
      const reached = rewards.filter((other, k) => k !== s && other.length > turn);
      const others = reached.length > 0 ? reached.map((other) => toGo(other, turn)) : [];
      if (others.length === 0) return;
      const mean = others.reduce((a, b) => a + b) / others.length;
      expect(advantages[s].turns[turn]).toBeCloseTo(toGo(own, turn) - mean, 9);
    }),
  );
  const scores = rewards.map((own) => toGo(own, 0));
  advantages.forEach(({ whole }, s) => expect(whole).toBeCloseTo(advantagesBy('grpo', scores)[s], 9));
  expect(tools.GAMES.map(({ end }) => end)).toContain('won');
  for (const { moves, turnRewards } of tools.GAMES)
    expect(moves.map(({ reply }) => reply.startsWith('Not a free cell'))).toEqual(
      turnRewards.map((own) => own === -0.1),
    );
});

test('a first move that costs 1 makes the won game of lesson 4 worse than the mean, and by turns only that move', () => {
  const won = tools.GAMES.findIndex(({ end }) => end === 'won');
  const rewards = tools.GAMES.map(({ turnRewards }, s) => (s === won ? [-1, ...turnRewards.slice(1)] : turnRewards));
  const { turns, whole } = tools.turnAdvantages(rewards)[won];
  expect(whole).toBeLessThan(0);
  expect(turns[0]).toBeLessThan(0);
  for (const later of turns.slice(1)) expect(later).toBeGreaterThan(0);
});

test('the toy task of lesson 4 is the one that turnCredit.test.ts measures', () => {
  const measured = readFileSync('test/unit/turnCredit.test.ts', 'utf8').replace(/\s+\*\s+/g, ' ');
  const { 'toy-turns': turns, 'toy-whole': whole } = tools.NUMBERS;
  expect(measured).toContain(`Measured: ${turns} samples against ${whole} until`);
});

test('figure 4.2 counts calls by the name of the tool, whatever its parameters are', () => {
  const { callersInWords, callsOf } = tools;
  const turn = (name: string, args: object) => ({
    role: 'assistant' as const,
    content: `So <tool_call>{"name": "${name}", "arguments": ${JSON.stringify(args)}}</tool_call>`,
  });
  const answer = { role: 'assistant' as const, content: '#### 9' };
  const own = callsOf([turn('sum', { numbers: '4+5' }), { role: 'tool', content: '9' }, answer]);
  const other = callsOf([turn('calculator', { expression: '4+5' }), { role: 'tool', content: '9' }, answer]);
  expect(own).toEqual([{ tool: 'sum', expression: '4+5', result: '9' }]);
  expect(callersInWords([own, other, other, []], 'sum')).toBe(
    '1 of 4 tries called your tool. 2 called calculator instead.',
  );
  expect(callersInWords([own, own, []], 'sum')).toBe('2 of 3 tries called your tool.');
  const { tries } = tools.RECORDED.tools;
  const written = tries.flatMap(({ messages }) => JSON.stringify(messages).match(/<tool_call>/g) ?? []);
  expect(tries.flatMap(({ messages, promptMessages }) => callsOf(messages.slice(promptMessages)))).toHaveLength(
    written.length,
  );
});

test('the program of lesson 4 has the tries of the exercise, and the rewards of the task', async () => {
  const table = vi.spyOn(console, 'table').mockImplementation(() => {});
  await import('../../demo/lessons/4-tools/twin.js');
  const [rows] = table.mock.calls[0] as [{ text: string; task: number }[]];
  vi.restoreAllMocks();
  const { HOSTILE, taskPays } = toolExercises;
  expect(rows.map(({ text, task }) => [text, task])).toEqual(
    HOSTILE.map((one) => [one.text.replaceAll('\n', ' / '), taskPays(one)]),
  );
});

test('the runs and seeds of lesson 6 are those of docs/lab/results.md', () => {
  const page = readFileSync('docs/lab/results.md', 'utf8');
  for (const { name, solved } of claims.ALGORITHMS) {
    const [low, high] = [solved[0], solved.at(-1)!].map((count) => (count / 256).toFixed(3));
    const mean = (solved.reduce((a, b) => a + b) / (256 * solved.length)).toFixed(3);
    expect(page).toMatch(new RegExp(`\\| ${name} \\|.*\\| ${mean} \\(${low} to ${high}\\) \\|`));
  }
  for (const [seed, rate] of ['0.980', '0.953'].entries()) {
    expect(claims.TWO_SEEDS[seed]).toMatch(rate);
    expect(page).toMatch(new RegExp(`\\| runs/seed-${seed + 1} \\| [\\d.]+ \\| ${rate} \\|`));
  }
});

test('what lesson 6 says of its recorded models holds', () => {
  const { attempts, TRIES } = evidence;
  const lost = pairedDifference(attempts(claims.TRAINED.outcomes, TRIES), attempts(claims.START.outcomes, TRIES));
  expect(lost.low).toBeGreaterThan(0); // "0 is not in its interval"
  expect(claims.crossing(claims.MODELS[3])).toBeUndefined(); // "its curves never cross"
  // "a difference of" the two rates beside it
  for (const k of [1, 2, 4, 8, 32]) {
    const [, gain] = /a difference of (\S+) /.exec(claims.passInWords(claims.TRAINED, k))!;
    const [before, now] = [claims.START, claims.TRAINED].map(({ outcomes }) => evidence.passOf(outcomes, k));
    expect(gain).toBe(claims.three(now - before));
  }
  const [dapo, sapo] = [claims.ALGORITHMS[2].solved, claims.ALGORITHMS[5].solved];
  expect(sapo.filter((solved) => solved > dapo[0])).toHaveLength(2); // a sentence of the prediction
});

test('the best of several equals is what counting all choices gives', () => {
  const { bestOf, bestOfEqual, leastP } = evidence;
  expect(bestOf([0.2, 0.9, 0.5], 2)).toBeCloseTo((0.9 + 0.9 + 0.5) / 3, 12);
  expect(bestOf([0.2, 0.9, 0.5], 3)).toBeCloseTo(0.9, 12);
  expect(bestOfEqual(0.3, 2, 1)).toBeCloseTo(0.3, 12);
  // The best of two evaluations of two problems. An evaluation has score 0 with probability 0.49, and score 1 with probability 0.09.
  expect(bestOfEqual(0.3, 2, 2)).toBeCloseTo(1 - 0.91 ** 2 + 0.5 * (0.91 ** 2 - 0.49 ** 2), 12);
  expect([1, 2, 3, 4].map(leastP)).toEqual([1, 2 / 6, 2 / 20, 2 / 70].map((p) => expect.closeTo(p, 12)));
});

test('the recorded tries of lesson 6 are in no order, and drawn evaluations have their rate', () => {
  for (const { outcomes } of claims.MODELS) {
    expect(outcomes).toHaveLength(256);
    const rate = evidence.rateOf(outcomes);
    // If tries were stored in the order in which they ended, short tries would come first, and the first columns would have other rates.
    const columns = evidence.evaluations(outcomes, 256);
    for (const column of columns) expect(Math.abs(column - rate)).toBeLessThan(0.12);
    expect(evidence.passOf(outcomes, 1)).toBeCloseTo(rate, 12);
    expect(evidence.rateOf(evidence.attempts(outcomes, 32))).toBeCloseTo(evidence.passOf(outcomes, 32), 12);
    const { rates } = evidence.resampled(outcomes, 256);
    expect(rates.reduce((a, b) => a + b) / rates.length).toBeCloseTo(rate, 1);
  }
});

test('every evaluation of figure 6.1 samples new tries', async () => {
  const config = resolveTrainConfig({ name: 'x', model: { path: 'x' } });
  const session = stub<Session>({ config, engine: scriptedEngine(), task: tasks.countdownTask() });
  vi.stubGlobal('document', new EventTarget());
  vi.spyOn(await import('../../demo/lessons/kit/live.ts'), 'live').mockImplementation((use) => use(session));
  const seeds = new Set<number>();
  vi.spyOn(library.GrpoTrainer.prototype, 'validate').mockImplementation(function (this: library.GrpoTrainer) {
    seeds.add(this.config.seed);
    return Promise.resolve({});
  });
  const { evaluateHere } = await import('../../demo/lessons/6-claims/live.ts');
  vi.unstubAllGlobals();
  const { signal } = new AbortController();
  for (let press = 0; press < 8; press++) await evaluateHere({ onProgress: () => {}, signal });
  vi.restoreAllMocks();
  expect(seeds.size).toBe(8);
});

test('the program of lesson 6 prints p-values, and the intervals of two files', async () => {
  const table = vi.spyOn(console, 'table').mockImplementation(() => {});
  const given = process.argv;
  onTestFinished(() => void (process.argv = given));
  const run = async (...files: string[]) => {
    process.argv = ['node', 'twin.js', ...files];
    await import(/* @vite-ignore */ `${resolve('demo/lessons/6-claims/twin.js')}?files=${files.length}`);
    return table.mock.lastCall![0] as Record<string, Record<string, number>>;
  };
  const names = claims.ALGORITHMS.map(({ name }) => name);
  const printed = await run();
  expect(Object.keys(printed)).toEqual(names);
  expect(printed['dapo']['sapo']).toBeCloseTo(permutationTest(claims.RUNS[2].passes, claims.RUNS[5].passes), 3);
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-claims-'));
  const files = [claims.START, claims.TRAINED].map(({ id, outcomes }) => {
    const file = join(folder, `${id}.json`);
    writeFileSync(file, JSON.stringify({ tries: outcomes }));
    return file;
  });
  const compared = await run(...files);
  vi.restoreAllMocks();
  const { mean, low, high } = pairedDifference(claims.START.outcomes, claims.TRAINED.outcomes);
  expect(Object.values(compared['b - a'])).toEqual([mean, low, high].map((value) => Number(value.toFixed(3))));
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

test("an error of a loop is the text of its button, also without a line, and marks the loop's text", async () => {
  vi.spyOn(adapters, 'findAdapter').mockResolvedValue({ name: '', isSoftware: false });
  vi.spyOn(files, 'fetchShipped').mockResolvedValue(stub({}));
  class Failing extends EventTarget {
    terminate() {}
    postMessage() {
      this.dispatchEvent(new MessageEvent('message', { data: { failed: { message: 'No train.' } } }));
    }
  }
  vi.stubGlobal('Worker', Failing);
  const onMistake = vi.fn();
  const work = loopWork({ text: () => '', options: {}, onSteps: () => {}, onMistake });
  await expect(work(new AbortController().signal, () => {})).rejects.toThrow('No train.');
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  expect(onMistake.mock.calls).toEqual([[undefined], [{ ok: false, says: 'No train.', line: undefined }]]);
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

test('the pipelines of lesson 5 end as docs/lab/pipelines.md says', () => {
  const page = readFileSync('docs/lab/pipelines.md', 'utf8');
  for (const [name, pass] of Object.entries(stale.PASSES))
    expect(page).toMatch(new RegExp(`\\| ${name} \\| [\\d.]+ \\| [\\d.]+ \\| [\\d.]+ \\| ${pass} \\|`));
  expect(page).toContain(`(-${stale.SAVED})`);
});

test('a chosen reward of figure 4.3 shows its recorded run, also after a run of the reader', async () => {
  vi.stubGlobal('location', { search: '', hash: '#pays=calls' });
  vi.stubGlobal('history', { replaceState: () => {} });
  vi.stubGlobal('addEventListener', () => {});
  const { CheatFigure, drawn } = await import('../../demo/lessons/4-tools/cheat.tsx');
  const { move } = await import('../../demo/lessons/kit/address.ts');
  drawn.value = { pays: 'calls', steps: [[1, 0.5, 0.5]], heldOut: [], tries: [] };
  const shown = ['calls', 'length', 'calls'].map((pays) => {
    move({ pays });
    const figure: VNode<{ source?: string }> = CheatFigure();
    return figure.props.source;
  });
  vi.unstubAllGlobals();
  const [own, recorded] = [/^Trained in this tab/, /^Recorded: .*length/].map((text) => expect.stringMatching(text));
  expect(shown).toEqual([own, recorded, own]);
});

test('the recorded runs of lesson 5 are complete, and their tokens are as old as their pipeline allows', () => {
  expect(stale.delaysOf('grpo')).toEqual(stale.DELAYS);
  for (const { id } of stale.LOSSES)
    for (const delay of stale.delaysOf(id))
      expect(stale.valuesOf(delay, id, 'reward'), `${id} ${delay}`).toHaveLength(3);
  for (const { reward, high, low, share } of stale.RECORDED.runs) {
    expect(reward).toHaveLength(run.STEPS);
    expect([high[0], low[0], share[0]]).toEqual([1, 1, 1]); // nothing was updated before step 1
    expect(high.at(-1)).toBeGreaterThan(1);
  }
  const [none, one, some] = stale.PIPELINES.map((pipeline) => stale.agesOf(pipeline));
  expect(none[0]).toBe(1);
  expect(one[1]).toBe(1);
  expect(some[0]).toBeGreaterThan(0.4);
  expect(some[0]).toBeLessThan(1);
  // "no try had two versions"
  for (const pieces of stale.PIPELINES.flatMap(({ tries }) => tries))
    expect(new Set(pieces.map(([, age]) => age).filter((age) => age >= 0)).size).toBe(1);
});

test('a cap of 1 keeps the most tokens, and no cap all weight; a try has the product of its weights', () => {
  const { corrected, effectiveShare, truncatedWeights } = weights;
  const tokens = stale.tokensOf(16);
  const [one, all] = [corrected(tokens, 1, 'token'), corrected(tokens, Infinity, 'token')];
  expect(all.lost).toBe(0);
  expect(one.share).toBeGreaterThan(all.share);
  expect(effectiveShare([2, 0, 0, 0])).toBe(0.25);
  const [product] = truncatedWeights({ drawn: [[-1, -2]], now: [[-0.5, -1]] }, Infinity, 'sequence');
  expect([...product]).toEqual([Math.exp(1.5), Math.exp(1.5)].map((value) => expect.closeTo(value, 12)));
});

test('with fast tools no pipeline of lesson 5 waits less than with slow ones', () => {
  const { work, times, measured } = stale.RECORDED;
  expect(times).toEqual(timesOf(work, SETTING));
  times.forEach(({ seconds }, i) => expect(Math.abs(seconds / measured[i] - 1)).toBeLessThan(0.06)); // docs/guides/simulate.md
  const [fast, slow] = [0, 8].map((tool) => timesOf(work, { ...SETTING, tool }));
  fast.forEach(({ waits, seconds }, i) => {
    expect(seconds).toBeLessThan(slow[i].seconds);
    expect(waits).toBeLessThan(slow[i].waits);
  });
  expect(slow[2].seconds).toBeLessThan(slow[0].seconds);
});

test('the appendix compares kernels and gradients with the float64 references of the library', () => {
  const [x, weight, dy] = [
    [0.5, -2, 3, 0, 1, -1],
    [1, -0.5, 2],
    [0.3, -1, 0.7],
  ].map((list) => Float64Array.from(list));
  const { y, rstd } = reference.rmsnorm(x, weight, EPS);
  expect([...exactNorm(x, weight)]).toEqual([...y]);
  for (const [row, at] of [x.subarray(0, 3), x.subarray(3)].map((one, i) => [one, i] as const)) {
    const { dx } = reference.rmsnormBwd(dy, row, weight, rstd.subarray(at, at + 1));
    expect(under.byHand([...row], [...weight], [...dy], EPS)).toEqual(
      [...dx].map((value) => expect.closeTo(value, 12)),
    );
  }
});
