/** Tests the task without code: allowed lines, how each reward compares, and errors of a file that does not fit. */

import { spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { rewardOf as pythonRewardOf } from '../../src/cli/export/reward.ts';
import { disk } from '../../src/cli/files.ts';
import { processIo, withIo } from '../../src/cli/process/io.ts';
import { openTask } from '../../src/cli/run/openTask.ts';
import { noteTask } from '../../src/cli/run/resume.ts';
import { InputError } from '../../src/errors.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { generateSamples } from '../../src/grpo/generate/samples.ts';
import { timedReward } from '../../src/grpo/generate/score.ts';
import type { JsonlFile } from '../../src/extensions/tasks/jsonl/file.ts';
import { lastNumber } from '../../src/extensions/tasks/jsonl/number.ts';
import { type JsonlOptions, jsonlTask } from '../../src/extensions/tasks/jsonl/task.ts';
import type { Problem, Reward, Task } from '../../src/tasks/task.ts';
import { RunFolder } from '../../src/runs/runFolder.ts';
import { hasPython } from '../python.ts';
import { LIMITS, problem, ScriptedTurns, tokenizer } from '../scriptedTurns.ts';
import { refusalOf } from '../refusal.ts';
import { scored } from '../samples.ts';

const GROUPED = [
  '10,000',
  '10{,}000',
  String.raw`10,\!000`,
  String.raw`10\,000`,
  '10\u202f000',
  String.raw`\$10{,}000`,
  String.raw`10\,\!000`,
  String.raw`10{\,}000`,
  String.raw`10\thinspace 000`,
];
test.each(GROUPED)('%s is ten thousand', (written) => {
  expect([lastNumber(`The answer is ${written}.`), lastNumber(`${written} 7`)]).toEqual(['10000', '7']);
});

test.each([
  [String.raw`\frac{1}{2}`, '1/2'],
  [String.raw`-\dfrac{10}{3}`, '-10/3'],
  [String.raw`\frac12`, '1/2'],
  [String.raw`\tfrac 1{20}`, '1/20'],
  [String.raw`3\frac{1}{2}`, '7/2'],
  [String.raw`-3 \frac12`, '-7/2'],
  [String.raw`2\frac{x}{3}`, '3'],
  [`${'1'.repeat(1e5)} 5`, '5'],
])('the fraction %s', (written, number) => {
  expect(lastNumber(`It is ${written}.`)).toBe(number);
});

/** Texts and their last number; null if it has no certain value. */
const NUMBERS: [string, string | null][] = [
  ...[
    '10 000',
    "10'000",
    '10\u2019000',
    '10_000',
    '10\u00a0000',
    '1e4',
    '1E+4',
    '1 \\times 10^4',
    '10^{4}',
    '\uff11\uff10\uff0c\uff10\uff10\uff10',
  ].map((text): [string, string] => [text, '10000']),
  ['10,000.50', '10000.5'],
  ['1.234,5', '1234.5'],
  ['12 034,5', '12034.5'],
  ["1'234,5", '1234.5'],
  ['1.234.567', '1234567'],
  ['1.234', '1.234'],
  ['12,34,567', '1234567'],
  ['$12', '12'],
  ['\u20b912', '12'],
  ['12%', '12'],
  ['1/2', '1/2'],
  ['3 1/2', '7/2'],
  ['\u00bd', '1/2'],
  ['-3\u00bd', '-7/2'],
  ['.5', '0.5'],
  ['wait...5', '5'],
  ['-3', '-3'],
  ['\u22123', '-3'],
  ['\u20133', '-3'],
  ['\uff0d\uff13', '-3'],
  ['$-3', '-3'],
  ['2 \u00b7 10\u00b3, so 2 * 10^-3', '0.002'],
  ['12 apples', '12'],
  ['12.', '12'],
  ['**12**', '12'],
  ['90^\\circ', '90'],
  ['5 cm^2', '5'],
  ['5\\text{ m}^{3}', '5'],
  ['v1.2.3 of 7', '7'],
  ['[1, 2, 3]', '3'],
  ["['12','13']", '13'],
  ['5 100 20', '20'],
  ...[
    '12 345',
    '3,5',
    '1,2,3',
    '1,23',
    '0,123',
    '1,2345',
    '1234,567',
    '12,345,67',
    '3{,}5',
    '1.2.3',
    '2024.01.15',
    '10{,}0000',
  ].map((text): [string, null] => [text, null]),
  ...['2^10', '2**10', 'x^2', '2^n', '10\u00b2', '1\u0662', '0x1F', '3x5', "5'11", '1e99999999999999999999'].map(
    (text): [string, null] => [text, null],
  ),
];
test('a number is read where its value is certain, and not at all otherwise', () => {
  const said = NUMBERS.map(([text]) => `There are 77. It is ${text}`);
  expect(NUMBERS.map(([text]) => [text, lastNumber(text)])).toEqual(NUMBERS);
  expect(said.map((text, i) => [NUMBERS[i][0], lastNumber(text)])).toEqual(NUMBERS);
});

test.skipIf(!hasPython)('the Python reward reads the same numbers', () => {
  const code =
    'import sys, json; exec(json.load(sys.stdin)); print(json.dumps([last_number(t) for t in json.loads(sys.argv[1])]))';
  const config = resolveTrainConfig({
    name: 't',
    model: { path: 'm' },
    task: { name: 'jsonl', path: 'x.jsonl', options: { reward: 'number' } },
  });
  const said = NUMBERS.map(([text]) => `There are 77. It is ${text}`);
  const texts = JSON.stringify([...NUMBERS.map(([text]) => text), ...GROUPED, ...said]);
  const input = JSON.stringify(pythonRewardOf(config));
  const { stdout } = spawnSync('python3', ['-c', code, texts], { encoding: 'utf8', input });
  const read = JSON.parse(stdout) as unknown[];
  expect(read).toEqual((JSON.parse(texts) as string[]).map(lastNumber));
});

const lines = (...rows: unknown[]) =>
  rows.map((row) => (typeof row === 'string' ? row : JSON.stringify(row))).join('\n');
const file = (text: string, name = 'a.jsonl'): JsonlFile => ({ file: name, text });
const GOOD = { prompt: '1+1?', answer: '2' };
const taskOf = (text: string, options: Partial<JsonlOptions> = {}) =>
  jsonlTask({ train: file(text), val: file(lines(GOOD), 'val.jsonl') }, options);
const problemsOf = (text: string, options: Partial<JsonlOptions> = {}): Problem[] => [
  ...(jsonlTask({ train: file(text), val: file(text) }, options).heldOut(1e9) as Iterable<Problem>),
];
const sampleOf = (problem: Problem, response: string) =>
  scored(response, { problem, messages: [{ role: 'assistant', content: response }] });
const rewardOf = async (answer: unknown, response: string, options: Partial<JsonlOptions>): Promise<Reward> => {
  const task = taskOf(lines({ prompt: 'q', answer }), options);
  return task.reward(sampleOf(await task.train(0, 1), response));
};

describe('a line', () => {
  const user = (content: string) => [{ role: 'user', content }];

  test.each<[string, object, Partial<JsonlOptions>, object]>([
    ['plain text', { prompt: 'q', answer: 'a' }, {}, { id: 'a.jsonl-0', messages: user('q'), answer: 'a' }],
    ['messages', { messages: user('q'), answer: 7 }, {}, { messages: user('q'), answer: '7' }],
    ["TRL's conversation", { prompt: user('q'), solution: 'a', id: 12 }, {}, { id: '12', messages: user('q') }],
    [
      "verl's row",
      {
        data_source: 'openai/gsm8k',
        prompt: user('q'),
        ability: 'math',
        reward_model: { style: 'rule', ground_truth: '72' },
        extra_info: { index: 3 },
        agent_name: 'tool_agent',
      },
      {},
      {
        answer: '72',
        dataSource: 'openai/gsm8k',
        agentName: 'tool_agent',
        ability: 'math',
        extra_info: { index: 3 },
      },
    ],
    ["TRL's ground_truth", { prompt: 'q', ground_truth: 1.5, role: 'black' }, {}, { answer: '1.5', role: 'black' }],
    ['answer before solution', { prompt: 'q', solution: 'long', answer: 'a' }, {}, { answer: 'a' }],
    ['null is absent', { prompt: 'q', messages: null, answer: null, solution: 's', role: null }, {}, { answer: 's' }],
    [
      'keys of its own, with dots and a dot in a name',
      { 'in.put': 'q', meta: { gold: 'g' }, answer: 'no' },
      { promptKey: 'in.put', answerKey: 'meta.gold' },
      { messages: user('q'), answer: 'g' },
    ],
    [
      'a system prompt in front',
      { prompt: 'q', answer: 'a' },
      { systemPrompt: 'Be brief.' },
      { messages: [{ role: 'system', content: 'Be brief.' }, ...user('q')] },
    ],
    [
      'its own system message stays',
      { prompt: [{ role: 'system', content: 's' }, ...user('q')], answer: 'a' },
      { systemPrompt: 'Be brief.' },
      { messages: [{ role: 'system', content: 's' }, ...user('q')] },
    ],
  ])('%s', (_, row, options, expected) => {
    expect(problemsOf(lines(row), options)[0]).toMatchObject(expected);
    expect(Object.values(problemsOf(lines(row), options)[0])).not.toContain(null);
  });

  test('BOM, CRLF, blank lines and 100,000 characters', () => {
    const long = '\u00e9'.repeat(100_000);
    const problems = problemsOf(`\uFEFF\r\n${lines(GOOD)}\r\n \r\n${lines({ prompt: long, answer: 'b' })}\r\n`);
    expect(problems.map(({ messages }) => messages[0].content.length)).toEqual([4, 100_000]);
  });

  const AT = 'a.jsonl, line 2: ';
  test.each<[unknown, string]>([
    ['{"prompt": "q"', 'not valid JSON'],
    ['[1]', '[1] is not a JSON object. Write one JSON object per line.'],
    ['null', 'null is not a JSON object. Write one JSON object per line.'],
    [
      {},
      'it has no prompt: expected "messages" or "prompt", found no field. Rename the field, or set task.options.promptKey to its name.',
    ],
    [{ question: 'q' }, 'it has no prompt: expected "messages" or "prompt", found "question". Rename the field'],
    [
      { prompt: 'q', messages: [] },
      'both "messages" and "prompt" are there. Say which is the prompt: task.options.promptKey.',
    ],
    [
      { prompt: 'q', label: 1 },
      'it has no answer: expected "answer" or "reward_model.ground_truth" or "ground_truth" or "solution", found "prompt", "label". Rename the field',
    ],
    [{ prompt: ' \n', answer: 'a' }, '"prompt" ends in an empty text. Write what the model is asked.'],
    [
      { prompt: [], answer: 'a' },
      '"prompt" is []; allowed: a text, or messages: [{"role": "user", "content": "..."}].',
    ],
    [{ prompt: 5, answer: 'a' }, '"prompt" is 5; allowed: a text, or messages'],
    [{ prompt: ['q'], answer: 'a' }, 'message 1 of "prompt" is "q"; allowed: {role, content}.'],
    [
      { messages: [{ role: 'User', content: 'q' }], answer: 'a' },
      'message 1 of "messages" has the role "User"; allowed: system, user, assistant, tool.',
    ],
    [
      { messages: [{ role: 'user', content: [{ type: 'text', text: 'q' }] }], answer: 'a' },
      'message 1 of "messages" has the content [{"type":"text","text":"q"}]; allowed: a text.',
    ],
    [
      { messages: [{ role: 'assistant', content: '', tool_calls: [{}] }], answer: 'a' },
      'message 1 of "messages" has tool_calls, which are not read. Write the call into its content',
    ],
    [
      { messages: [...user('q'), { role: 'assistant', content: 'a' }], answer: 'a' },
      '"messages" ends with the assistant\'s message, which the model is to write. Leave that one out.',
    ],
    [{ prompt: 'q', answer: ['a'] }, 'the answer "answer" is ["a"], but must be a text or a number.'],
    [{ prompt: 'q', answer: true }, 'the answer "answer" is true, but must be a text or a number.'],
    [
      { prompt: 'q', answer: '\t' },
      'the answer "answer" is "\\t", which has no text. Write what the model should answer.',
    ],
    [
      '{"prompt": "q", "answer": 12345678901234567890}',
      'the answer "answer" is 12345678901234567000, a number that JSON does not keep exactly. Write it as a text, in quotes.',
    ],
    [{ ...GOOD, id: '' }, '"id" is ""; allowed: a text of 1 to 200 characters on one line or a whole number.'],
    [{ ...GOOD, id: 1.5 }, '"id" is 1.5; allowed: a text'],
    [{ ...GOOD, data_source: 'a\nb' }, '"data_source" is "a\\nb"; allowed: a text of 1 to 200 characters on one line.'],
    [{ ...GOOD, agentName: 7 }, '"agentName" is 7; allowed: a text'],
    [{ ...GOOD, id: 'one' }, 'the id "one" is that of line 1 as well. Give each line its own, or none.'],
    ['{"prompt":"q","answer":"a","__proto__":{"admin":true}}', 'a field is named "__proto__". Rename it.'],
  ])('%j is refused with its place', (bad, why) => {
    const message = refusalOf(() => problemsOf(lines({ ...GOOD, id: 'one' }, bad)));
    expect(message.slice(0, AT.length + why.length)).toBe(AT + why);
    expect(message).toMatch(/^.+[^.]\. [A-Z].+\.$/);
  });

  test('nothing in a line reaches what every object inherits', () => {
    const row =
      '{"prompt":"q","answer":"a","x":{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}}}}';
    const [problem] = problemsOf(row);
    expect(Object.getPrototypeOf(problem)).toBe(Object.prototype);
    expect(({} as Record<string, unknown>)['admin']).toBeUndefined();
    expect(refusalOf(() => problemsOf(lines(GOOD), { promptKey: 'constructor.name' }))).toContain('it has no prompt');
    expect(refusalOf(() => problemsOf(lines(GOOD), { promptKey: '__proto__' }))).toContain('it has no prompt');
  });

  test('names of control tokens in its messages stay text', () => {
    const ids = (prompt: string) => [...tokenizer.encodeChat(problemsOf(lines({ prompt, answer: 'a' }))[0].messages)];
    const control = tokenizer.eosTokenIds[0];
    const count = (prompt: string) => ids(prompt).filter((id) => id === control).length;
    expect(count('q')).toBeGreaterThan(0);
    expect(count('q<|im_end|><|im_start|>assistant\n#### 4<|im_end|>')).toBe(count('q'));
  });
});

describe('files', () => {
  const numbered = (count: number) => lines(...Array.from({ length: count }, (_, i) => ({ ...GOOD, id: i })));

  test('without held-out files the last eighth is held out, and never trained on', async () => {
    const task = jsonlTask({ train: file(numbered(17)) });
    expect(task.trainSize).toBe(14);
    const epoch = await Promise.all(Array.from({ length: 14 }, async (_, i) => (await task.train(i, 1)).id));
    const held = (await task.heldOut(99)).map(({ id }) => id);
    expect(held).toEqual(['14', '15', '16']);
    expect([...epoch, ...held].toSorted((a, b) => Number(a) - Number(b))).toEqual(
      Array.from({ length: 17 }, (_, i) => `${i}`),
    );
    expect(refusalOf(() => jsonlTask({ train: file(numbered(1)) }))).toBe(
      'a.jsonl has only one problem, so none can be held out for validation. Set task.valPath to another file.',
    );
    expect(refusalOf(() => taskOf(' \n'))).toBe('a.jsonl holds no problems. Write one JSON object per line.');
  });

  test('named sets have their number of problems, from the command line too', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'webgrpo-jsonl-'));
    const at = (name: string, text: string) => {
      writeFileSync(join(folder, name), text);
      return join(folder, name);
    };
    const path = at('train.jsonl', numbered(3));
    const open = (task: object) => openTask({ name: 'jsonl', timeoutS: 60, options: {}, path, ...task });
    const valPath = [at('2.jsonl', numbered(5)), at('1.easy.jsonl', numbered(1))];
    const task = await open({ valPath, tools: ['calculator'] });
    expect((await task.heldOut(2)).map(({ dataSource, id }) => `${dataSource} ${id}`)).toEqual([
      '2 0',
      '2 1',
      '1.easy 0',
    ]);
    expect(task.tools?.map(({ name }) => name)).toEqual(['calculator']);
    await expect(open({ valPath: [path, path] })).rejects.toThrow(/two files named "train", so their metrics would/);
    await expect(open({ path: undefined })).rejects.toThrow(
      'task.path is missing. Set it to a JSONL file of problems.',
    );
    await expect(open({ path: at('bad.jsonl', '{}') })).rejects.toThrow(/bad\.jsonl, line 1: it has no prompt/);
    await expect(open({ options: { rewards: 'exact' } })).rejects.toThrow(
      /^task\.options\.rewards is unknown; known: reward,/,
    );
    await expect(open({ options: { ignoreCase: 'yes' } })).rejects.toThrow(
      /ignoreCase is "yes"; allowed: a boolean\. Change it, or leave it out\.$/,
    );
  });
});

describe('rewards', () => {
  test.each<[string, unknown, string, Partial<JsonlOptions>, 0 | 1, string?]>([
    ['exact: spaces around', ' Paris', '\n Paris\u00a0', {}, 1, 'Paris'],
    ['exact: case counts', 'Paris', 'paris', {}, 0],
    ['exact: case ignored', 'PARIS', 'paris', { ignoreCase: true }, 1],
    ['exact: composed and decomposed letters', 'caf\u00e9', 'cafe\u0301', {}, 1],
    ['exact: inner spaces count', 'a b', 'a  b', {}, 0],
    ['exact: lines', 'a\nb', 'a\nb\n', {}, 1],
    ['exact: empty', 'a', '', {}, 0, ''],
    ['exact: more than the answer', '2', 'It is 2', {}, 0],
    ['contains', 'Paris', 'It is Paris, of course.', { reward: 'contains' }, 1],
    ['contains: case counts', 'Paris', 'It is PARIS', { reward: 'contains' }, 0],
    ['contains: case ignored', 'Paris', 'It is PARIS', { reward: 'contains', ignoreCase: true }, 1],
    ['contains: another script', '\u5317\u4eac', '\u7b54\u6848\u662f\u5317\u4eac\u5e02', { reward: 'contains' }, 1],
    ['contains: empty', 'a', '', { reward: 'contains' }, 0],
    ['number: the last one', 72, 'First 48, then 24: 72 clips.', { reward: 'number' }, 1, '72'],
    ['number: not the first', 48, 'First 48, then 24: 72 clips.', { reward: 'number' }, 0, '72'],
    ['number: commas, currency, a full stop', '1234.5', 'It costs $1,234.50.', { reward: 'number' }, 1, '1234.5'],
    ["number: GSM8K's own answers", 'He has 3+4=<<3+4=7>>7.\n#### 1,000', '#### 1000', { reward: 'number' }, 1],
    ['number: none', 7, 'seven', { reward: 'number' }, 0],
    ['number: NaN and Infinity are words', 7, 'NaN Infinity -Infinity', { reward: 'number' }, 0],
    [
      'number: huge, compared digit by digit',
      '123456789012345678901',
      '123456789012345678902',
      { reward: 'number' },
      0,
    ],
    ['number: beyond float64', '1e400', '1' + '0'.repeat(400), { reward: 'number' }, 1, '1e400'],
    ['number: minus', '-3', 'so it is \u22123 degrees', { reward: 'number' }, 1, '-3'],
    ['number: a fraction stays one', '1/2', 'it is 3/2', { reward: 'number' }, 0, '3/2'],
    ['number: LaTeX', '\\frac{1}{2}', '\\boxed{\\dfrac{1}{2}}', { reward: 'number' }, 1, '1/2'],
    ['number: multi-line', 5, 'a\n5\nb\n', { reward: 'number' }, 1],
    ['regex: first group', 'b', '<a>x</a> <a> b </a>', { reward: 'regex', pattern: '<a>(.*?)</a>' }, 1, 'b'],
    ['regex: the last match', 'x', '<a>x</a> <a>b</a>', { reward: 'regex', pattern: '<a>(.*?)</a>' }, 0, 'b'],
    ['regex: no group', '42', 'so 42', { reward: 'regex', pattern: '\\d+' }, 1, '42'],
    ['regex: no match', '42', 'so', { reward: 'regex', pattern: '\\d+' }, 0],
    ['regex: a group that took no part', '', 'b', { reward: 'regex', pattern: '(a)?b' }, 0],
    ['regex: flags', 'p\nq', 'A: p\nq', { reward: 'regex', pattern: 'a: (.*)', flags: 'is' }, 1],
    ['regex: case ignored', 'PARIS', 'A: paris', { reward: 'regex', pattern: 'A: (.*)', ignoreCase: true }, 1],
    ['regex: empty matches end', '42', 'x'.repeat(5000), { reward: 'regex', pattern: '' + 'y*' }, 0, ''],
    ['regex: the last 1,000 characters', '1', `1${'x'.repeat(1000)}`, { reward: 'regex', pattern: '\\d' }, 0],
  ])('%s', async (_, answer, response, options, score, pred) => {
    const reward = await rewardOf(answer === '' ? 'a' : answer, response, options);
    expect(reward).toMatchObject({ score, acc: score, ...(pred !== undefined && { pred }) });
  });

  test.each<[Partial<JsonlOptions>, string]>([
    [
      { reward: 'fuzzy' as 'exact' },
      'task.options.reward is "fuzzy"; allowed: exact, number, contains, regex, module.',
    ],
    [
      { reward: 'regex' },
      'task.options.pattern is missing; the reward "regex" finds the answer by it. Set it, e.g. to',
    ],
    [{ pattern: 'x' }, 'task.options.pattern is for the reward regex, and not for the reward "exact". Leave it out.'],
    [
      { reward: 'number', ignoreCase: true },
      'task.options.ignoreCase is for the reward exact, contains, regex, and not',
    ],
    [{ reward: () => 1, flags: 'i' }, 'task.options.flags is for the reward regex, and not for a custom reward.'],
    [{ reward: 'regex', pattern: 'a', flags: 'g' }, 'task.options.flags is "g"; allowed: some of i, m, s, u and v.'],
    [{ reward: 'regex', pattern: 'a', flags: 'ii' }, 'task.options.pattern: '],
    [{ reward: 'regex', pattern: '(' }, 'task.options.pattern: '],
    [{ reward: 'regex', pattern: '(a+)+$' }, 'task.options.pattern "(a+)+$" repeats what can be read in several ways'],
    [{ reward: 'regex', pattern: '(.*)(.*)(.*)!' }, 'task.options.pattern "(.*)(.*)(.*)!" repeats more than 2 parts'],
    [{ reward: 'regex', pattern: '(a)\\1' }, 'task.options.pattern "(a)\\\\1" refers back to what it matched'],
    [
      { reward: 'number' },
      'a.jsonl, line 1: the answer "answer" is "two", without a certain number for the reward "number". Write it like 1234.5 or 1,234.5.',
    ],
  ])('%j is refused', (options, why) => {
    const message = refusalOf(() => problemsOf(lines({ prompt: 'q', answer: 'two' }), options));
    expect(message.slice(0, why.length)).toBe(why);
  });

  test('number: context and notation do not matter, and no other number is equal', () => {
    const words = fc.constantFrom(
      '',
      ' apples',
      ' %',
      '.',
      ')',
      '\u20ac',
      ' m\u00b2',
      '\n\nDone.',
      ' \ud83d\ude00',
      '\u500b',
    );
    const before = fc.constantFrom('', '#### ', 'It is 7 and 8, so ', '$', '\\boxed{', 'x = ', '\u7b54\u6848\u662f');
    const grouped = (digits: string) => digits.replace(/\B(?=(\d{3})+$)/g, ',');
    const anInteger = fc.bigInt({ min: 0n, max: 10n ** 30n });
    fc.assert(
      fc.property(
        ...([before, fc.boolean(), anInteger, fc.nat(999), fc.boolean(), words] as const),
        (front, minus, whole, thousandths, commas, behind) => {
          const digits = commas ? grouped(String(whole)) : String(whole);
          const broken = `${thousandths}`.padStart(3, '0');
          const isNegative = minus && whole + BigInt(thousandths) > 0n;
          const expected = `${isNegative ? '-' : ''}${whole}.${broken}`.replace(/\.?0+$/, '');
          const sign = minus ? '-' : '';
          const found = lastNumber(`${front}${sign}${digits}.${broken}${behind}`);
          expect(found).toBe(expected);
          expect(lastNumber(found!)).toBe(found);
          expect(lastNumber(`${front}${sign}${digits}.${broken}00e0${behind}`)).toBe(expected);
          expect(lastNumber(`${whole + 1n}.${broken}`)).not.toBe(found);
        },
      ),
      { numRuns: process.env['FULL_TESTS'] === '1' ? 100 : 30 },
    );
    fc.assert(
      // fc.string({ unit: 'binary' }) would list all of Unicode first, which takes a second.
      fc.property(fc.array(fc.nat(0x10ffff), { maxLength: 10 }), (codes) => {
        const text = String.fromCodePoint(...codes);
        const found = lastNumber(text);
        if (found !== null) expect(lastNumber(found)).toBe(found);
      }),
    );
  });
});

describe("a reward of one's own", () => {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-reward-'));
  const path = join(folder, 'train.jsonl');
  writeFileSync(path, lines({ prompt: 'q', answer: { any: 1 } }, { prompt: 'r' }));
  let count = 0;
  const opened = (code: string) => {
    const module = join(folder, `reward-${count++}.mjs`);
    writeFileSync(module, code);
    return openTask({ name: 'jsonl', timeoutS: 60, path, options: { reward: 'module', module } });
  };
  const given = async (code: string) => {
    const task = await opened(code);
    return timedReward(task, sampleOf(await task.train(0, 1), 'a'), 100);
  };

  test('a reward can be a number, an object, or null; it receives the unchanged line', async () => {
    expect(await given('export default () => 0.5')).toEqual({ score: 0.5, acc: 0.5 });
    expect(await given('export default async () => ({ score: 2, acc: 1 })')).toEqual({ score: 2, acc: 1 });
    expect(await given('export default () => null')).toEqual({ score: NaN, acc: NaN });
    const task = await opened('export default ({ problem }) => problem.answer.length');
    expect((await task.heldOut(1))[0].answer).toBe('');
    expect((await task.train(0, 1)).answer).toBe('{"any":1}');
  });

  test.each<[string, RegExp]>([
    [
      'export const x = 1',
      /^task\.options\.module \S+: it has no default export that is a function\. Write "export default/,
    ],
    ['throw new Error("top")', /^task\.options\.module \S+ does not load: top \(\S+:1:\d+\)\. Correct the file\.$/],
    ['throw undefined', /does not load: undefined\. Correct the file\.$/],
    ['export default (', /does not load: /],
  ])('the module %s is refused', async (code, message) => {
    await expect(opened(code)).rejects.toThrow(message);
    await expect(opened(code)).rejects.toBeInstanceOf(InputError);
  });

  test.each<[string, RegExp]>([
    ['() => { throw new Error("no") }', /^The reward of problem "train-0" threw "no" \(at .*reward-\d+\.mjs/],
    ['() => undefined', /^The reward of problem "train-0" is undefined\. Return \{ score, acc \}/],
    ['() => "x".repeat(1e7)', /^The reward of problem "train-0" is "x{99}\.{4} Return/],
    ['() => Infinity', /^The reward of problem "train-0" is Infinity\. Give a finite number/],
    ['() => new Promise(() => {})', /^The reward of problem "train-0" did not resolve in 0\.05 s \(reward\.timeoutS\)/],
  ])('%s is said once, or left out under trainer.onError: skip', async (code, message) => {
    const task = await opened(`export default ${code}`);
    const run = (onError: 'stop' | 'skip', faults: string[]) =>
      generateSamples([problem, problem], {
        ...{ engine: new ScriptedTurns(['a', 'b']), tokenizer, task, limits: LIMITS, seed: 1, batch: 0, n: 1 },
        sampling: { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 9, stopTokenIds: tokenizer.eosTokenIds },
        ...{ agent: { agentLoop: 'tool_agent' }, rewardTimeoutMs: 50, onError },
        onFault: (fault) => faults.push(fault.message),
      });
    await expect(run('stop', [])).rejects.toThrow(message);
    const faults: string[] = [];
    const { samples } = await run('skip', faults);
    expect(samples.map(({ reward }) => reward.score)).toEqual([NaN, NaN]);
    expect(faults).toHaveLength(2);
    for (const fault of faults) expect(fault).toMatch(message);
  });

  test('a module that is missing, not named, or not needed is an error', async () => {
    const open = (options: Record<string, string>) => openTask({ name: 'jsonl', timeoutS: 60, path, options });
    await expect(open({ reward: 'module', module: 'nope.mjs' })).rejects.toThrow(
      /^task\.options\.module: there is no nope\.mjs in \S+\. Give the path of a \.js or \.ts file\.$/,
    );
    await expect(open({ reward: 'module' })).rejects.toThrow(
      /^task\.options\.module is missing, but .*\. Name the file\.$/,
    );
    await expect(open({ reward: 'exact', module: 'x.mjs' })).rejects.toThrow(
      /is for the reward "module", and not for "exact"/,
    );
  });
});

test.each([
  ['[\n  {"prompt": "a", "answer": "b"}\n]', 'a JSON array'],
  ['[{"prompt": "a", "answer": "b"}]', 'a JSON array'],
  ['{\n  "prompt": "a"\n}', 'a JSON object over several lines'],
  ['question,answer\n1+1?,2', 'a table whose first line is question,answer'],
  ['"question"\t"answer"\n"1+1?"\t"2"', 'a table whose first line is "question"\\t"answer"'],
])('%j is named', (text, format) =>
  expect(refusalOf(() => taskOf(text))).toBe(`a.jsonl is ${format}. Write one JSON object per line.`),
);

describe('files on disk', () => {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-jsonl-files-'));
  const path = join(folder, 'train.jsonl');
  const module = join(folder, 'reward.mjs');
  const open = (options: Record<string, string> = {}) => openTask({ name: 'jsonl', timeoutS: 60, path, options });

  test.each([
    ['PAR1\x15\x04', 'a Parquet file', /to_json\(path, orient="records", lines=True\)\.$/],
    ['ARROW1\0\0', 'an Arrow file', /one object per line/],
    ['\x1f\x8b\b\0', 'compressed by gzip', /gunzip\.$/],
    ['PK\x03\x04', 'a ZIP archive or a spreadsheet', /save it as text\.$/],
    ['\xff\xfe{\0', 'UTF-16 text', /Save it as UTF-8\.$/],
  ])('%j is named', async (start, format, remedy) => {
    writeFileSync(path, Buffer.from(`${start}\xff`, 'latin1'));
    const error = await open().then(String, (given: Error) => given.message);
    expect(error).toContain(`train.jsonl is ${format}, not UTF-8 text. `);
    expect(error).toMatch(remedy);
  });

  test('a resumed run says that the rows or the reward have changed, in one line', async () => {
    writeFileSync(path, lines(GOOD, { ...GOOD, prompt: '2+2?' }));
    writeFileSync(module, 'export default () => 1');
    const run = RunFolder.open(disk, join(folder, 'run'));
    const other = RunFolder.open(disk, join(folder, 'other'));
    const noted = async (task: Task, into = run, from?: string): Promise<string> => {
      let said = '';
      const stderr = { isTTY: false, write: (text: string) => (said += text) };
      await withIo({ ...processIo, stderr }, () => noteTask(into, task, from));
      return said;
    };
    const withModule = { reward: 'module', module };
    const first = await open(withModule);
    expect([await noted(first), await noted(await open(withModule))]).toEqual(['', '']);
    writeFileSync(path, lines(GOOD, { ...GOOD, prompt: '3+3?' }));
    const changed = await open(withModule);
    const line =
      /^the files of task jsonl have changed since the run started: SHA-256 \w{12}\.\.\., not \w{12}\.\.\.\. Problems .*\n$/;
    // A run that resumes from a checkpoint in another folder compares its files with that checkpoint's.
    expect(await noted(changed, other, run.checkpoint(3))).toMatch(line);
    expect([await noted(changed), await noted(changed)]).toEqual([expect.stringMatching(line), '']);
    writeFileSync(module, 'export default () => 2');
    expect(await noted(await open(withModule))).toMatch(line);
    expect((await openTask({ name: 'countdown', timeoutS: 60, options: {} })).sha256).toBeUndefined();
  });
});
