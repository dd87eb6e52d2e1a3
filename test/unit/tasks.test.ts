import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readText } from '../../src/cli/files.ts';
import { defaultFunction } from '../../src/cli/importModule.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { runAgentLoop } from '../../src/rollout/agent/loop.ts';
import { countdownTask, type CountdownProblem } from '../../src/extensions/tasks/countdown.ts';
import { openShippedTask, type TaskConfig } from '../../src/extensions/tasks/open.ts';
import { keyedRng } from '../../src/tasks/random.ts';
import { reverseTextTask, similarity } from '../../src/extensions/tasks/reverseText.ts';
import { searchQaTask } from '../../src/extensions/tasks/searchQa.ts';
import type { SyncTask } from '../../src/tasks/task.ts';
import { calculate } from '../../src/tasks/tools/calculator.ts';
import { exampleOf, taskTokenizer } from '../../src/extensions/sft/taskExamples.ts';
import { LIMITS, ScriptedTurns } from '../scriptedTurns.ts';
import { scored } from '../samples.ts';

const openTask = (config: TaskConfig) => openShippedTask(config, { readText, loadReward: defaultFunction });

const fast = { minSearchS: 0, maxSearchS: 0 };
/** Each task with its default options, and with options that leave it few problems. */
const TASKS: [string, () => SyncTask | Promise<SyncTask>, () => SyncTask | Promise<SyncTask>][] = [
  ['reverse-text', () => reverseTextTask(), () => reverseTextTask({ letters: 5 })],
  ['countdown', () => countdownTask(), () => countdownTask({ maxNumbers: 2, maxNumber: 5 })],
  ['search-qa', () => searchQaTask(fast), () => searchQaTask({ ...fast, people: 40 })],
];

describe.each(TASKS)('%s', (name, open, openSmall) => {
  test('training problems are fixed by index and seed; held-out ones are distinct and never trained on', async () => {
    const task = await open();
    expect(task.train(5, 1)).toEqual(task.train(5, 1));
    expect(task.train(5, 1)).not.toEqual(task.train(5, 2));
    const held = task.heldOut(40);
    const questions = new Set(held.map(({ messages }) => messages[0].content));
    expect(questions.size).toBe(40);
    expect(task.heldOut(40)).toEqual(held);
    for (let i = 0; i < 200; i++) expect(questions.has(task.train(i, 3).messages[0].content)).toBe(false);
  });

  test('more held-out problems than exist end in one error message', async () => {
    const task = await openSmall();
    expect(() => task.heldOut(1_000_000)).toThrow(
      new RegExp(`^1000000 held-out problems were requested, but task "${name}" has only \\d+\\. Ask for fewer\\.$`),
    );
  });

  test('its tokenizer writes right demonstrations that score 1, and wrong ones that score less', async () => {
    const task = await open();
    const files = await taskTokenizer(task, task.tokenizer!.vocabSize);
    const tokenizer = new ChatTokenizer(files.tokenizer, files.config);
    expect(tokenizer.vocabSize).toBeLessThanOrEqual(task.tokenizer!.vocabSize);
    for (let i = 0; i < 3; i++) {
      for (const [errorRate, want] of [
        [0, 1],
        [1, 0],
      ]) {
        const problem = task.train(i, 1);
        const { promptIds, responseIds, mask } = await exampleOf(task, tokenizer, 1, i, errorRate);
        const turns = task.demonstrate!(problem, keyedRng('sft-mistakes', 1, i), errorRate).filter(
          ({ role }) => role === 'assistant',
        );
        const engine = new ScriptedTurns(
          turns.map(({ content }) => content),
          tokenizer,
        );
        const output = await runAgentLoop({
          engine,
          tokenizer,
          tools: task.tools ?? [],
          problem,
          requestId: 'r',
          key: [1, 2],
          sampling: {
            temperature: 1,
            topK: 0,
            topP: 1,
            minP: 0,
            maxNewTokens: 99,
            stopTokenIds: tokenizer.eosTokenIds,
          },
          limits: { ...LIMITS, maxAssistantTurns: 9, maxResponseLength: 400, contextLength: 500 },
        });
        // The agent loop must produce exactly the tokens that the warm start imitates.
        expect(output.trajectory).toMatchObject({
          promptIds,
          responseIds,
          mask,
          stopReason: 'completed',
          numToolErrors: 0,
        });
        const response = output.messages.at(-1)!.content;
        const { acc, score } = await task.reward({ ...scored(response, { problem }), toolRewards: output.toolRewards });
        // A demonstration with mistakes can be right by chance: a random expression, or a palindrome.
        if (want === 1) expect([acc, score]).toEqual([1, 1]);
        else if (acc === 0) expect(score).toBeLessThan(1);
      }
    }
  });
});

test('countdown: only the given numbers, each once, count', () => {
  const task = countdownTask();
  const problem: CountdownProblem = {
    id: 'p',
    messages: [],
    answer: '25',
    numbers: [1, 3, 8],
    solution: '3*8+1',
  };
  const scoreOf = (of: CountdownProblem, answer: string) =>
    (task.reward(scored(`<answer>${answer}</answer>`, { problem: of })) as { score: number }).score;
  const score = (answer: string) => scoreOf(problem, answer);
  // A quotient near 0 does not hide numbers that the target does not need.
  const hiding = { ...problem, numbers: [1, 2, 3, 50, 75], answer: '5' };
  expect(scoreOf(hiding, '2+3+1/50/75')).toBe(0.1);
  expect(scoreOf({ ...problem, numbers: [1, 3, 3], answer: '1' }, '1/3*3')).toBe(1);
  expect(['3*8+1', '1 + 8*3', '(3*8)+1'].map(score)).toEqual([1, 1, 1]);
  expect(['3+8+1', '3*8-1'].map(score)).toEqual([0.1, 0.1]);
  expect(['25', '3*8+1+0', '5*5', '3*8+1;', 'globalThis', '', '3*8+1=25', '38+1'].map(score)).toEqual(Array(8).fill(0));
  for (let i = 0; i < 200; i++) {
    const { numbers, solution, answer } = task.train(i, 1) as CountdownProblem;
    expect(calculate(solution)).toBe(answer);
    expect((solution.match(/\d+/g) ?? []).map(Number).sort((a, b) => a - b)).toEqual(numbers);
  }
});

test('countdown with a curriculum starts at minNumbers, rises and falls with the outcomes, and resumes from its state', () => {
  const options = { minNumbers: 2, maxNumbers: 4, curriculum: true };
  const task = countdownTask(options);
  const sizes = (of: SyncTask) =>
    new Set(Array.from({ length: 100 }, (_, i) => (of.train(i, 1) as CountdownProblem).numbers.length));
  const observe = (of: SyncTask, size: number, acc: number, groups = 16) => {
    const problem = { id: 'p', messages: [], answer: '', numbers: Array(size).fill(1) };
    for (let i = 0; i < groups; i++)
      void of.observe?.(problem, [
        { score: acc, acc },
        { score: 0, acc: NaN },
      ]);
  };
  expect(sizes(task)).toEqual(new Set([2]));
  observe(task, 3, 1); // does not count: not of the current level
  observe(task, 2, 1, 15);
  expect(sizes(task)).toEqual(new Set([2]));
  observe(task, 2, 1, 1);
  expect(sizes(task)).toEqual(new Set([2, 3]));
  observe(task, 3, 0.5, 40);
  const resumed = countdownTask(options);
  resumed.restore?.(JSON.parse(JSON.stringify(task.state?.())));
  for (const of of [task, resumed]) observe(of, 3, 0, 12); // with 4 of 0.5: mean 0.125
  expect(sizes(task)).toEqual(new Set([2]));
  expect(resumed.train(7, 1)).toEqual(task.train(7, 1));
  expect(countdownTask({ ...options, curriculum: false }).observe).toBeUndefined();
  expect(task.heldOut(50)).toEqual(countdownTask({ ...options, curriculum: false }).heldOut(50));
});

test('several held-out files have separate names; two with one name are refused', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-val-'));
  const line = (n: number) => `${JSON.stringify({ question: `What is ${n}?`, answer: `#### ${n}` })}\n`;
  for (const [file, count] of [
    ['train', 8],
    ['easy', 3],
    ['hard', 2],
  ] as const)
    writeFileSync(join(folder, `${file}.jsonl`), Array.from({ length: count }, (_, i) => line(i)).join(''));
  const at = (name: string) => join(folder, `${name}.jsonl`);
  const open = (valPath: string[] | Record<string, string>) =>
    openTask({ name: 'gsm8k', path: at('train'), valPath, options: {} });
  const sources = (task: SyncTask) => task.heldOut(2).map(({ dataSource }) => dataSource);
  expect(sources(await open([at('easy'), at('hard')]))).toEqual(['easy', 'easy', 'hard', 'hard']);
  const named = await open({ a: at('hard'), b: at('hard') });
  expect(sources(named)).toEqual(['a', 'a', 'b', 'b']);
  expect(named.trainSize).toBe(8);
  await expect(open([at('hard'), at('hard')])).rejects.toThrow('task.valPath has two files named "hard"');
});

test('reverse-text: letters in their places are half of the score, an exact match the rest', () => {
  expect(similarity('abc', 'abc')).toBe(1);
  expect(similarity('abcd', 'abxd')).toBe(0.75);
  expect(similarity('', 'ab')).toBe(0);
  const task = reverseTextTask();
  const problem = { id: 'p', messages: [], answer: 'cba' };
  expect(task.reward(scored('cba', { problem }))).toMatchObject({ score: 1, acc: 1 });
  expect(task.reward(scored('cb', { problem }))).toMatchObject({ score: 1 / 3, acc: 0, extra: { similarity: 2 / 3 } });
  expect(task.reward(scored('abc', { problem }))).toMatchObject({ score: 1 / 6, acc: 0 });
  expect(task.reward(scored('cbaa', { problem }))).toMatchObject({ score: 3 / 8, acc: 0 });
  expect(task.reward(scored('', { problem }))).toMatchObject({ score: 0, acc: 0 });
});

test('a config adds shipped tools to those of its task', async () => {
  const names = async (name: string, tools?: ('calculator' | 'javascript')[]) =>
    (await openTask({ name, options: {}, tools })).tools?.map((tool) => tool.name);
  expect(await names('gsm8k', ['javascript', 'calculator'])).toEqual(['calculator', 'javascript']);
  expect(await names('countdown', ['javascript'])).toEqual(['javascript']);
  expect(await names('countdown')).toBeUndefined();
});

test('a file of one problem is not both trained on and held out', async () => {
  const path = join(mkdtempSync(join(tmpdir(), 'webgrpo-one-')), 'one.jsonl');
  writeFileSync(path, JSON.stringify({ question: 'One?', answer: '#### 1' }));
  await expect(openTask({ name: 'gsm8k', path, options: {} })).rejects.toThrow(
    `${path} has only one problem, so none can be held out for validation. Set task.valPath to another file.`,
  );
  const task = await openTask({ name: 'gsm8k', path, valPath: path, options: {} });
  expect([task.train(0, 1).answer, task.train(9, 1).answer, task.heldOut(3).length]).toEqual(['1', '1', 1]);
});

test.each([
  ['countdown', { maxNumbers: 1e9 }, 'countdown: option maxNumbers is 1000000000; allowed: integers from 2 to 8.'],
  ['countdown', { minNumbers: 3, maxNumbers: 2 }, 'countdown: option minNumbers is 3, above maxNumbers, 2. Swap them.'],
  ['countdown', { maxNumber: 2.5 }, 'countdown: option maxNumber is 2.5; allowed: integers from 2 to 1000000.'],
  ['countdown', { maxNumber: 2, maxTarget: 1 }, 'Raise maxNumber, maxNumbers or maxTarget.'],
  ['reverse-text', { letters: 0 }, 'reverse-text: option letters is 0; allowed: integers from 1 to 26.'],
  [
    'reverse-text',
    { maxLength: 1e8 },
    'reverse-text: option maxLength is 100000000; allowed: integers from 1 to 1000.',
  ],
  ['search-qa', { people: 1e6 }, 'search-qa: option people is 1000000; allowed: integers from 4 to 1000.'],
  ['search-qa', { minSearchS: -1 }, 'search-qa: option minSearchS is -1; allowed: numbers from 0 to 3600.'],
])('options that would draw for ever: %s %j', async (name, options, sentence) => {
  const draw = async () => (await openTask({ name, options })).heldOut(4);
  await expect(draw()).rejects.toThrow(sentence);
});

test("openTask's error names the known tasks", async () => {
  const open = (name: string, options = {}) => openTask({ name, options });
  await expect(open('nope')).rejects.toThrow(
    'task.name is "nope"; known tasks: gsm8k, jsonl, reverse-text, countdown, search-qa, adventure, tic-tac-toe.',
  );
  await expect(open('countdown', { maxNumber: '12' })).rejects.toThrow(
    'task.options.maxNumber is "12"; allowed: a number.',
  );
  await expect(open('countdown', { max: 12 })).rejects.toThrow(/^task\.options\.max is unknown; known: minNumbers, /);
  await expect(openTask({ name: 'countdown', path: 'x.jsonl', options: {} })).rejects.toThrow(
    'task.path is set, but task "countdown" generates its problems. Remove task.path.',
  );
  for (const [name, words] of [
    ['countdown', 'task.valPath is set, but task "countdown" generates its problems. Remove task.valPath.'],
    ['gsm8k', 'task.valPath is set without task.path, so the task would generate its problems. Set both, or remove'],
    ['jsonl', 'task.path is missing. Set it to a JSONL file of problems.'],
  ])
    await expect(openTask({ name, valPath: 'x.jsonl', options: {} })).rejects.toThrow(words);
});
