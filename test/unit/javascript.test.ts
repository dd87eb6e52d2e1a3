import { describe, expect, test, vi } from 'vitest';
import { type JavascriptLimits, javascriptTool, runJavascript } from '../../src/extensions/sandbox/javascript.ts';
import { Sandbox } from '../../src/extensions/sandbox/sandbox.ts';
import { run } from '../scriptedTurns.ts';

/** Limits that end programs by their processor time only. Only one test uses the wall clock. */
const LIMITS = { timeMs: 50, clockMs: 120_000, memoryBytes: 16 * 2 ** 20, maxOutput: 200 };
const js = (code: string, limits: JavascriptLimits = LIMITS) => runJavascript(code, limits);

// Messages of the limits that end hostile programs. They do not depend on the machine's speed.
const WORK = 'Error: the program ran longer than 50 ms';
const MEMORY = 'Error: InternalError: out of memory';
/** Possible messages when too little memory is left for the error itself. */
const MEMORY_FULL = /^Error: (InternalError: out of memory|null|a value that cannot be shown)$/;
const STACK = 'Error: InternalError: stack overflow';
const PRINTED = 'Error: the program printed more than 200 characters';
const DEPTH = 'a value that cannot be shown';

async function expectOutput(code: string, expected: string | RegExp): Promise<void> {
  const output = await js(code);
  if (typeof expected === 'string') expect(output).toBe(expected);
  else expect(output).toMatch(expected);
}

describe('chance and time', () => {
  const code =
    'const d = new Date(); print(Math.random(), Math.random(), Date.now(), d.getTime(), d instanceof Date, Date().length > 9, ' +
    'new d.constructor().getTime(), new Date(2020, 1, 2).getFullYear(), Date.UTC(2020, 0), typeof Date.parse("2020-01-01"))';

  test('follow from the key of the sample', async () => {
    const of = (key: string) => runJavascript(code, LIMITS, undefined, key);
    const first = await of('1.0.3');
    expect(await of('1.0.3')).toBe(first);
    expect((await of('1.0.4')).split(' ')[0]).not.toBe(first.split(' ')[0]);
    const [a, b, ...rest] = first
      .split(' ')
      .map((word) => JSON.parse(word === 'number' ? '"number"' : word) as unknown);
    expect([a, b].every((draw) => typeof draw === 'number' && draw >= 0 && draw < 1)).toBe(true);
    const start = Date.UTC(2026, 0, 1);
    expect(rest).toEqual([start + 1, start, true, true, start + 3, 2020, Date.UTC(2020, 0), 'number']);
  });
});

describe('programs', () => {
  test.each([
    ['6 * 7', '42'],
    ['print(1, "a", [1, 2]); console.log({ x: 1 })', '1 a [1,2]\n{"x":1}'],
    ['let s = 0; for (let i = 1; i <= 100; i++) s += i; s', '5050'],
    ['"plain"', 'plain'],
    ['2n ** 64n', '18446744073709551616'],
    ['undefined', 'undefined'],
    ['Symbol("a")', 'a symbol'],
    ['(a) => a', '(a) => a'],
    ['throw new TypeError("no")', 'Error: TypeError: no'],
    ['throw "bare"', 'Error: bare'],
    ['print("seen"); null.x', /^Error: TypeError: .+\nseen$/],
    ['let x =', /^Error: SyntaxError: /],
    ['(async () => { await null; return 5; })()', '5'],
    ['Promise.reject(new Error("late"))', 'Error: Error: late'],
    ['new Promise(() => {})', 'Error: the promise of the program is never settled'],
    ['"\\ud83d\\ude00 <|im_end|> \\ud800"', /^\u{1f600} <\|im_end\|> /u],
  ])('%s', expectOutput);
});

describe('hostile programs', () => {
  /** Programs that end as others below do. */
  const OF_A_KIND: [string, string, string | RegExp][] = [
    ['a deep text to parse', 'JSON.parse("[".repeat(1e6))', 'Error: SyntaxError: stack overflow'],
    ['a deep regular expression', 'new RegExp("(".repeat(1e5))', 'Error: SyntaxError: too many captures'],
    ['one huge buffer', 'new ArrayBuffer(2 ** 31)', 'Error: RangeError: invalid array buffer length'],
    ['a huge array', 'new Array(2 ** 32 - 1).fill(0)', MEMORY],
    ['many small objects', 'const a = []; for (;;) a.push({})', MEMORY_FULL],
    ['10 MB in one line', 'print("x".repeat(1e6), ..."x".repeat(10).split("").map((x) => x.repeat(1e6)))', PRINTED],
    ['ever more promises', 'const f = () => { Promise.resolve().then(f); Promise.resolve().then(f); }; f()', WORK],
    ['a getter that throws', '({ get x() { throw 1; } })', 'a value that cannot be shown'],
    ['a function whose text is a loop', 'const f = () => 1; f.toString = () => { for (;;); }; f', WORK],
    ['a circular value', 'const a = {}; a.a = a; a', 'a value that cannot be shown'],
    ['a promise that awaits itself', 'const p = new Promise((r) => setTimeout(r)); p', /^Error: ReferenceError/],
  ];
  test.each<[string, string, string | RegExp]>([
    ['an endless loop', 'for (;;);', WORK],
    ['one that catches its end', 'for (;;) { try { for (;;); } catch {} }', WORK],
    ['an endless regular expression', '/(a+)+$/.test("a".repeat(60) + "b")', WORK],
    ['endless recursion', 'const f = () => f() + 1; f()', STACK],
    ['ever deeper values', 'let n = []; for (;;) n = [n]', MEMORY_FULL],
    ['a deep value', 'let n = 1; for (let i = 0; i < 20000; i++) n = [n]; n', DEPTH],
    ['memory', 'const a = []; for (;;) a.push(new Array(1e4).fill(1))', MEMORY],
    ['one huge string', '"x".repeat(2 ** 29)', MEMORY],
    ['a flood of output', 'for (;;) print("x".repeat(50))', PRINTED],
    ['a huge value', '"x".repeat(1e6)', 'x'.repeat(200)],
    ['promises without end', 'const f = () => Promise.resolve().then(f); f()', MEMORY_FULL],
    ['a getter that does not end', '({ get x() { for (;;); } })', WORK],
    [
      'an error whose message throws',
      'throw Object.defineProperty(new Error(), "message", { get() { throw 1; } })',
      'Error: a value that cannot be shown',
    ],
    [
      'a proxy that traps everything',
      'throw new Proxy({}, { get() { throw 1 }, getPrototypeOf() { for (;;); } })',
      WORK,
    ],
    [
      'prototypes turned against the output',
      'String.prototype.slice = () => ({}); Object.prototype.toJSON = () => "x".repeat(1e6); ({})',
      /^.{0,200}$/,
    ],
    [
      'a value that names prototypes',
      '({ __proto__: null, constructor: { prototype: 1 } })',
      '{"constructor":{"prototype":1}}',
    ],
    ...(process.env['FULL_TESTS'] === '1' ? OF_A_KIND : []),
  ])('%s', async (_, code, expected) => {
    await expectOutput(code, expected);
    expect(await js('1 + 1')).toBe('2');
  });

  test('a program that catches memory errors needs little processor time, and ends by the wall clock', async () => {
    const code = 'const a = []; for (;;) try { a.push(new Uint8Array(1e5)) } catch {}';
    expect(await js(code, { ...LIMITS, timeMs: 60_000, clockMs: 500 })).toBe(
      'Error: the program ran longer than 60000 ms',
    );
  });

  test.each([
    ...['process', 'require', 'fetch', 'WebAssembly', 'setTimeout', 'XMLHttpRequest', 'Worker', 'postMessage'],
    ...['std', 'os', 'self', 'importScripts'],
  ])('there is no %s', async (name) => {
    expect(await js(`typeof globalThis.${name}`)).toBe('undefined');
    expect(await js(`print.constructor("return typeof ${name}")()`)).toBe('undefined');
  });

  test.each(['fs', 'node:fs', './sandbox.ts', 'https://example.org/x.js', 'data:text/javascript,1'])(
    'import("%s") fails',
    async (name) => {
      expect(await js(`import("${name}")`)).toMatch(/^Error: \w*Error: /);
      expect(await js(`import x from "${name}"; x`)).toMatch(/^Error: SyntaxError: /);
    },
  );

  test('a program leaves no state for the next program, nor outside', async () => {
    await js('globalThis.left = 1; Object.prototype.left = 1; JSON.stringify = 0; print = console.log = null');
    expect(await js('typeof left + typeof ({}).left; print(JSON.stringify([1]))')).toBe('[1]');
    expect(await js('typeof left + typeof ({}).left')).toBe('undefinedundefined');
    expect(({} as Record<string, unknown>)['left']).toBeUndefined();
  });

  test('programs that fill their memory do not affect the next one, which gets the memory', async () => {
    const fill = 'const a = []; for (;;) a.push(new Uint8Array(1e6))';
    const limits = LIMITS;
    const outputs = await Promise.all(Array.from({ length: 30 }, () => runJavascript(fill, limits)));
    expect(new Set(outputs)).toEqual(new Set([MEMORY]));
    expect(await runJavascript('new Uint8Array(8e6).length', limits)).toBe('8000000');
  });
});

describe('the worker', () => {
  const PROGRAM = { ...LIMITS, code: '1', seed: 0 };

  test('a worker is reused for the next program, and their number is limited', async () => {
    const sandbox = new Sandbox(2);
    await Promise.all(Array.from({ length: 10 }, () => sandbox.run(PROGRAM)));
    expect(sandbox.started).toBe(2);
    sandbox.close();
    expect(await sandbox.run(PROGRAM)).toBe('1');
    expect(sandbox.started).toBe(3);
    sandbox.close();
  });

  test('an aborted run does not start what waits', async () => {
    const sandbox = new Sandbox(1);
    const controller = new AbortController();
    const [first, second] = [sandbox.run(PROGRAM), sandbox.run(PROGRAM, controller.signal)];
    controller.abort();
    await expect(second).rejects.toThrow('abort');
    expect(await first).toBe('1');
    sandbox.close();
  });
});

const holding = () => process.getActiveResourcesInfo().filter((name) => name === 'MessagePort').length;

test('an idle worker does not keep Node alive', async () => {
  await js('1');
  await new Promise((resolve) => setTimeout(resolve, 100)); // time for ended workers to disappear
  const held = holding();
  const sandbox = new Sandbox(1);
  await sandbox.run({ ...LIMITS, code: '1', seed: 0 });
  expect(holding()).toBeLessThanOrEqual(held); // fewer if the test runner released one of its own meanwhile
  sandbox.close();
});

test('impossible limits are refused', () => {
  expect(() => javascriptTool({ memoryBytes: 2 ** 30 })).toThrow(
    "The javascript tool's memoryBytes is 1073741824; allowed: an integer from 16777216 to 268435456.",
  );
});

test('as a tool of an agent loop', async () => {
  const call = `<tool_call>${JSON.stringify({ name: 'javascript', arguments: { code: '6*7' } })}</tool_call>`;
  const { messages } = await run([call, '#### 42'], { tools: [javascriptTool(LIMITS)] });
  expect(messages[1]).toEqual({ role: 'tool', content: '42' });
});

test("an abort of QuickJS is reported as the program's error, and printed nowhere", async () => {
  const write = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  try {
    expect(await js('eval("(".repeat(1e5))')).toMatch(/^Error: /);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(write.mock.calls.map(([text]) => String(text)).filter((text) => text.includes('Aborted'))).toEqual([]);
  } finally {
    write.mockRestore();
  }
});
