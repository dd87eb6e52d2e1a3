import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { demonstration, demonstrationTokens, NO_ERRORS, swapOnlyIn } from '../../src/extensions/sft/demonstrations.ts';
import { gsm8kToolTask, heldOutProblems, isHeldOut, trainProblem } from '../../src/tasks/gsm8k/task.ts';
import { gsm8kJsonlTask, parseGsm8kJsonl } from '../../src/extensions/tasks/gsm8k/jsonl.ts';
import { extractAnswer, gsm8kReward } from '../../src/tasks/gsm8k/reward.ts';
import { TEMPLATES } from '../../src/tasks/gsm8k/templates.ts';
import { buildTokenizer } from '../../src/extensions/sft/tokenizer.ts';
import { keyedRng } from '../../src/tasks/random.ts';
import type { Gsm8kProblem } from '../../src/tasks/gsm8k/task.ts';
import type { ScoredSample } from '../../src/tasks/task.ts';
import { scored } from '../samples.ts';

const readJson = (path: string) => JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
const tokenizer = new ChatTokenizer(
  readJson('checkpoints/gsm8k-tool/tokenizer.json'),
  readJson('checkpoints/gsm8k-tool/tokenizer_config.json'),
);
const train = Array.from({ length: 1500 }, (_, i) => trainProblem(i, 1));
/** Returns the template and the numbers of a problem. Problems with the same template and numbers count as the same. */
const identity = (p: Gsm8kProblem) =>
  `${p.template}: ${p.messages[0].content
    .replace(/[A-Z][a-z]{2}\b/g, '')
    .match(/\d+/g)
    ?.join(' ')}`;

test('the shipped checkpoint learned its tool without a schema, so prompts contain none by default', () => {
  expect(tokenizer.readsTools).toBe(false);
});

describe('generated problems', () => {
  test('problems are determined by index and seed, and differ between seeds', () => {
    expect(trainProblem(17, 1)).toEqual(train[17]);
    expect(trainProblem(17, 2)).not.toEqual(train[17]);
    expect(heldOutProblems(40).slice(0, 20)).toEqual(heldOutProblems(20));
  });

  test('train and held-out share no template with the same numbers; held-out never repeats', () => {
    const heldOut = heldOutProblems(256).map(identity);
    expect(new Set(heldOut).size).toBe(256);
    const trained = new Set(train.map(identity));
    expect(heldOut.filter((key) => trained.has(key))).toEqual([]);
    // One in eight problems is held out. The template and the numbers decide which, whatever the order of the numbers.
    expect(isHeldOut('boxes', { a: 2, b: 3 })).toBe(isHeldOut('boxes', { b: 3, a: 2 }));
  });

  test('at least 16 templates of 1 to 4 steps, about two calls a problem, every one held out too', () => {
    expect(TEMPLATES.length).toBeGreaterThanOrEqual(16);
    expect(new Set(TEMPLATES.map(({ id }) => id)).size).toBe(TEMPLATES.length);
    expect(new Set(TEMPLATES.map(({ steps }) => steps.length))).toEqual(new Set([1, 2, 3, 4]));
    const calls = train.reduce((sum, p) => sum + p.program.length, 0) / train.length;
    expect(calls).toBeGreaterThan(1.8);
    expect(calls).toBeLessThan(2.2);
    expect(new Set(heldOutProblems(TEMPLATES.length).map((p) => p.template)).size).toBe(TEMPLATES.length);
  });

  test('answers are positive integers of at most four digits and every number of the program is in the text', () => {
    for (const { answer, program, messages } of train) {
      expect(answer).toMatch(/^[1-9]\d{0,3}$/);
      const stated = new Set(messages[0].content.match(/\d+/g));
      for (const number of program.join(' ').replace(/#\d+/g, '').match(/\d+/g) ?? []) {
        // The 2 of a halving need not occur in the text: "half" is written as a word.
        expect(stated.has(number) || number === '2', `${messages[0].content} ${program.join(' ')}`).toBe(true);
      }
      expect(messages[0].content).not.toMatch(/[{}]|undefined/);
    }
  });

  test('prompts are short: 20 to 45 tokens', () => {
    const lengths = train.slice(0, 300).map((p) => tokenizer.encodeChat(p.messages).length);
    expect(Math.min(...lengths)).toBeGreaterThanOrEqual(20);
    expect(Math.max(...lengths)).toBeLessThanOrEqual(45);
  });

  test('traces are short; TOKEN_REPORT=1 prints tokens by template', () => {
    const rows = TEMPLATES.map(({ id }) => {
      const all = train
        .filter((p) => p.template === id)
        .slice(0, 10)
        .map((p) => demonstrationTokens(tokenizer, p, demonstration(p, keyedRng(p.id))));
      const mean = (length: (d: (typeof all)[0]) => number) => all.reduce((sum, d) => sum + length(d), 0) / all.length;
      const prompt = mean((d) => d.promptIds.length);
      const trained = mean((d) => d.mask.reduce((sum, m) => sum + m, 0));
      const longest = Math.max(...all.map((d) => d.responseIds.length));
      return { template: id, prompt, response: mean((d) => d.responseIds.length), trained, longest };
    });
    if (process.env['TOKEN_REPORT']) console.table(rows);
    expect(rows.reduce((sum, row) => sum + row.response, 0) / rows.length).toBeLessThan(40);
    expect(Math.max(...rows.map(({ longest }) => longest))).toBeLessThanOrEqual(72);
  });

  test('requesting too many held-out problems is an error that states their number', () => {
    expect(() => heldOutProblems(100_000)).toThrow(
      /^100000 held-out problems were requested, but template "[a-z-]+" has/,
    );
  });
});

const lastNumberIs = (number: string) => new RegExp(`(^|\\D)${number}\\D*$`);

const ERRORS = { firstSwapped: 0.6, laterWrong: 0.12 };

describe('demonstrations', () => {
  const rightFirst = (p: Gsm8kProblem, i: number) =>
    demonstration(p, keyedRng('demo', i), ERRORS).calls[0].expression === p.program[0];

  test('demonstrations without errors end in the answer', () => {
    for (const p of train.slice(0, 500)) {
      expect(demonstration(p, keyedRng(p.id), NO_ERRORS).final).toBe(`#### ${p.answer}`);
    }
  });

  test('the first operation is wrong 60% of the time, later steps 12%, and the rates are parameters', () => {
    const share = train.filter((p, i) => rightFirst(p, i)).length / train.length;
    expect(share).toBeGreaterThan(0.37);
    expect(share).toBeLessThan(0.43);
    const onlyLater = { firstSwapped: 0, laterWrong: 0.12 };
    const twoSteps = train.filter((p) => p.program.length === 2);
    const wrong = twoSteps.filter((p, i) => demonstration(p, keyedRng(i), onlyLater).final !== `#### ${p.answer}`);
    expect(wrong.length / twoSteps.length).toBeGreaterThan(0.08);
    expect(wrong.length / twoSteps.length).toBeLessThan(0.16);
    const one = { ...NO_ERRORS, byTemplate: { boxes: { firstSwapped: 1, laterWrong: 0 } } };
    for (const p of train.slice(0, 200)) {
      const right = demonstration(p, keyedRng(1), one).final === `#### ${p.answer}`;
      expect(right, p.template).toBe(p.template !== 'boxes');
    }
  });

  test("a guess makes no call and repeats the question's last number, as often as its rate says", () => {
    const guessing = { ...NO_ERRORS, guessed: 0.55 };
    const traces = train.map((p, i) => ({ p, trace: demonstration(p, keyedRng('guess', i), guessing) }));
    const guesses = traces.filter(({ trace }) => trace.calls.length === 0);
    expect(guesses.length / train.length).toBeGreaterThan(0.5);
    expect(guesses.length / train.length).toBeLessThan(0.6);
    for (const { p, trace } of guesses) expect(p.messages[0].content).toMatch(lastNumberIs(trace.final.slice(5)));
    for (const { p, trace } of traces.filter(({ trace }) => trace.calls.length > 0))
      expect(trace.final).toBe(`#### ${p.answer}`);
  });

  test('only the named templates swap their first operation; an unknown one is refused', () => {
    const rates = swapOnlyIn({ guessed: 0, firstSwapped: 1, laterWrong: 0 }, 'share,weekly');
    for (const p of train.slice(0, 500)) {
      const swapped = demonstration(p, keyedRng(p.id), rates).calls[0].expression !== p.program[0];
      expect(swapped, p.template).toBe(['share', 'weekly'].includes(p.template!));
    }
    expect(() => swapOnlyIn(ERRORS, 'shares')).toThrow(/swappedTemplates names "shares"; known: boxes, /);
  });

  test('a wrong step continues with its real result; instead of a division by zero, the right operation is shown', () => {
    const problem = { ...train[0], program: ['6*4', '#1+5'], answer: '29', template: 'x' };
    const always = { firstSwapped: 1, laterWrong: 0 };
    expect(demonstration(problem, keyedRng(1), always)).toEqual({
      calls: [
        { expression: '6/4', result: '1.5' },
        { expression: '1.5+5', result: '6.5' },
      ],
      final: '#### 6.5',
    });
    const zero = { ...problem, program: ['6*0'], answer: '0' };
    expect(demonstration(zero, keyedRng(1), always).calls).toEqual([{ expression: '6*0', result: '0' }]);
  });

  test('without a mistake the answer follows, also of a solution whose last step has no annotation', () => {
    const problem = { ...train[0], program: ['10*4', '4*1'], answer: '36' };
    expect(demonstration(problem, keyedRng(1))).toMatchObject({ calls: [{}, { result: '4' }], final: '#### 36' });
    const zero = { ...problem, program: ['9*0'] };
    expect(demonstration(zero, keyedRng(1), { firstSwapped: 1, laterWrong: 0 }).final).toBe('#### 36');
  });

  test('tokens: turns end with the end token and are trained, tool output is not', () => {
    const problem = { ...train[0], program: ['6*4', '24+5'], answer: '29' };
    const { responseIds, mask, promptIds } = demonstrationTokens(
      tokenizer,
      problem,
      demonstration(problem, keyedRng(1)),
    );
    const trained = [...responseIds].filter((_, i) => mask[i] === 1);
    const given = [...responseIds].filter((_, i) => mask[i] === 0);
    const call = (e: string) =>
      `<tool_call>{"name":"calculator","arguments":{"expression":"${e}"}}</tool_call><|im_end|>`;
    expect(tokenizer.decode(trained)).toBe(`${call('6*4')}${call('24+5')}#### 29<|im_end|>`);
    expect(tokenizer.decode(given)).toBe(
      '<tool_response>24</tool_response><|im_start|>assistant\n<tool_response>29</tool_response><|im_start|>assistant\n',
    );
    expect(tokenizer.decode(promptIds)).toBe(
      `<|im_start|>user\n${problem.messages[0].content}<|im_end|><|im_start|>assistant\n`,
    );
  });
});

describe('reward', () => {
  const sample = (response: string, more: Partial<ScoredSample> = {}) =>
    scored(response, { problem: { id: 'p', messages: [], answer: '1234' }, numToolCalls: 1, ...more });

  test.each([
    ['#### 1234', '1234'],
    ['#### 1,234', '1234'],
    ['#### 5 then #### -7', '-7'],
    ['####1234', null],
    ['#### $12', null],
    ['#### 1234.', '1234.'],
    ['the answer is 1234', null],
    [`#### 1234${' '.repeat(300)}`, null],
    [`#### 1234${' '.repeat(291)}`, '1234'],
  ])('%j gives %j, as verl extracts it', (text, answer) => expect(extractAnswer(text)).toBe(answer));

  test('only an exact match counts; shaping does not affect acc', () => {
    const shaping = { formatScore: 0.1, toolCallBonus: 0.05 };
    expect(gsm8kReward(sample('#### 1,234'))).toMatchObject({ score: 1, acc: 1 });
    expect(gsm8kReward(sample('#### 1234.0'))).toMatchObject({ score: 0, acc: 0 });
    expect(gsm8kReward(sample('#### 7'), shaping)).toMatchObject({ score: 0.1 + 0.05, acc: 0 });
    expect(gsm8kReward(sample('#### 7', { numToolErrors: 1 }), shaping)).toMatchObject({ score: 0.1, acc: 0 });
    expect(gsm8kReward(sample('#### 1234'), shaping)).toMatchObject({ score: 1.05, acc: 1 });
    expect(gsm8kToolTask().reward(sample('nothing'))).toMatchObject({ score: 0, acc: 0, extra: { answered: 0 } });
  });
});

describe('GSM8K JSONL', () => {
  const line = (question: string, answer: string) => JSON.stringify({ question, answer });
  const natalia = line(
    'Natalia sold 48 clips.',
    'She sold 48/2 = <<48/2=24>>24.\nAnd <<48+24=72>>72 in all.\n#### 1,072',
  );

  test('annotations become the program, the last line the answer', () => {
    const [problem] = parseGsm8kJsonl(`${natalia}\n\n`, 'train.jsonl');
    expect(problem).toMatchObject({ id: 'train.jsonl-0', answer: '1072', program: ['48/2', '48+24'] });
  });

  test('currency signs are removed, and lines that the calculator cannot read are skipped', () => {
    const [problem] = parseGsm8kJsonl(line('q', '<<$1,000*.5=500>> <<50%=0.5>> <<2x=4>> #### 500'), 'f');
    expect(problem.program).toEqual(['1000*.5']);
  });

  test.each([
    ['{"question": 1', /^f, line 2: not valid JSON \(.*\)\. Write one JSON object per line\.$/],
    ['[1]', /^f, line 2: \[1\] is not a JSON object\. Write one JSON object per line\.$/],
    ['7', /^f, line 2: 7 is not a JSON object\. Write one JSON object per line\.$/],
    [
      '{"question": "q"}',
      /^f, line 2: expected text under "question" and "answer", found \{"question": "q"\}\. Write both as texts\.$/,
    ],
    [line(' ', '#### 1'), /^f, line 2: expected text under "question" and "answer"/],
    [
      line('q', '#### ...'),
      /^f, line 2: the answer does not end in "#### N"; it ends in "#### \.\.\."\. Write it so\.$/,
    ],
    [line('q', '#### ,'), /^f, line 2: the answer does not end in "#### N"/],
    [line('q', '#### -'), /^f, line 2: the answer does not end in "#### N"/],
    [line('q', '#### 1.2.3'), /^f, line 2: the answer does not end in "#### N"/],
    [
      line('q', 'no answer'),
      /^f, line 2: the answer does not end in "#### N"; it ends in "no answer"\. Write it so\.$/,
    ],
  ])('%s names its line', (bad, message) => {
    expect(() => parseGsm8kJsonl(`${natalia}\n${bad}\n${natalia}`, 'f')).toThrow(message);
  });

  test('an empty file is refused', () => {
    expect(() => parseGsm8kJsonl('\n', 'f')).toThrow('f holds no problems. Write one JSON object per line.');
  });

  test('training goes through the whole file each epoch, in another order', () => {
    const problems = parseGsm8kJsonl(Array(7).fill(natalia).join('\n'), 'f');
    const task = gsm8kJsonlTask(problems, problems.slice(0, 3));
    const epoch = (n: number) => Array.from({ length: 7 }, (_, i) => task.train(7 * n + i, 3).id);
    expect(epoch(0).toSorted()).toEqual(problems.map((p) => p.id));
    expect(epoch(1).toSorted()).toEqual(problems.map((p) => p.id));
    expect(epoch(1)).not.toEqual(epoch(0));
    expect(task.heldOut(2).map((p) => p.id)).toEqual(['f-0', 'f-1']);
  });

  const real = '../shared/data/gsm8k/train.jsonl';
  test.skipIf(!existsSync(real))('the real file (skipped where ../shared/data/gsm8k is absent)', () => {
    const problems = parseGsm8kJsonl(readFileSync(real, 'utf8'), 'train.jsonl');
    expect(problems.length).toBe(7473);
    for (const p of problems) expect(demonstration(p, keyedRng(0)).final).toBe(`#### ${p.answer}`);
    const files = buildTokenizer(problems.slice(0, 500), 1024);
    const own = new ChatTokenizer(files.tokenizer, files.config);
    expect(own.decode(own.encodeChat(problems[1].messages))).toContain(problems[1].messages[0].content);
    expect(own.vocabSize).toBe(1024);
  });
});
