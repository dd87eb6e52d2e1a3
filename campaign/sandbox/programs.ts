/** Programs that print OUT if they reach something that the sandbox must hide. */

/** Names that must be undefined in a program. */
const FORBIDDEN = [
  ...[
    'process',
    'require',
    'fetch',
    'XMLHttpRequest',
    'WebSocket',
    'postMessage',
    'importScripts',
    'self',
    'window',
    'Worker',
  ],
  ...[
    'WebAssembly',
    'navigator',
    'location',
    'Buffer',
    'module',
    'setTimeout',
    'queueMicrotask',
    'performance',
    'crypto',
    'std',
    'os',
  ],
];

export const ESCAPES: string[] = [
  ...FORBIDDEN.map((name) => `typeof ${name} === 'undefined' ? 'in' : 'OUT ' + typeof ${name}`),
  ...[
    "(function () {}).constructor('return typeof process')()",
    "[].constructor.constructor('return this')().process",
    'print.constructor("return this")().postMessage',
    'console.log.constructor("return typeof require")()',
    'Object.getPrototypeOf(function* () {}).constructor("yield typeof process")().next().value',
    '(async () => {}).constructor("return typeof process")().then((found) => print(found === "undefined" ? "in" : "OUT")) && 1',
    'new Function("return globalThis")().self',
    '(0, eval)("typeof importScripts")',
    'globalThis.constructor.constructor("return this.fetch")()',
    'Reflect.construct(Function, ["return typeof window"])()',
    'try { null.x } catch (e) { e.constructor.constructor("return process")() }',
    'Error.prepareStackTrace = (_, s) => s[0].getThis(); new Error().stack',
    'Error.captureStackTrace ? "in" : "in"',
    'new Proxy({}, { get: (_, k) => k }).constructor',
  ].map(
    (code) =>
      `const found = (() => { ${/^(const|let|try|Error\.p)/.test(code) ? code : `return ${code}`} })(); typeof found === 'object' && found !== null && !Array.isArray(found) ? 'OUT' : found`,
  ),
  "import('node:fs').then(() => print('OUT'), () => print('in'))",
  "import('data:text/javascript,export default 1').then(() => print('OUT'), () => print('in'))",
  "import fs from 'fs'; print('OUT')",
  'new SharedArrayBuffer(8); Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 1e9)',
  'const seen = new Set(); const walk = (o, d) => { if (d > 6 || o === null || !/object|function/.test(typeof o) || seen.has(o)) return; seen.add(o); for (const k of Reflect.ownKeys(o)) { if (/process|require|fetch|postMessage/.test(String(k))) print("OUT", String(k)); try { walk(o[k], d + 1) } catch {} } }; walk(globalThis, 0)',
  ...[
    'leaked = 1',
    'globalThis.leaked = 1',
    'Object.prototype.leaked = 1',
    'Array.prototype.leaked = 1',
    'Array.prototype.map = 1',
  ],
  ...[
    'Math.random = () => 1',
    'Date.now = () => 1',
    'JSON.stringify = 1',
    'delete globalThis.print',
    'print = 1; console = 2',
  ],
  'Object.freeze(Object.prototype); Object.freeze(globalThis)',
  'Object.defineProperty(Object.prototype, "then", { get() { return (f) => f("x") } })',
];

export const BOMBS: string[] = [
  ...[
    'for (;;);',
    'while (true) {}',
    'for (;;) { try { for (;;); } catch {} }',
    'for (const x of (function* () { for (;;) yield 1 })());',
  ],
  ...[
    'const f = () => Promise.resolve().then(f); f()',
    'async function g() { for (;;) await null } g()',
    'new Promise(() => {})',
  ],
  ...[
    'const f = () => f() + 1; f()',
    'const f = (...a) => f(...a, 1); f()',
    'JSON.parse("[".repeat(1e6))',
    'eval("(".repeat(1e5))',
  ],
  ...[
    '"x".repeat(2 ** 29)',
    'let s = "x"; for (;;) s += s',
    'const a = []; for (;;) a.push(new Array(1e4).fill(1))',
    'new ArrayBuffer(2 ** 31)',
  ],
  ...[
    'new Array(2 ** 32 - 1).fill(0)',
    'const m = new Map(); for (let i = 0; ; i++) m.set(i, {})',
    'for (;;) print("x".repeat(50))',
  ],
  ...[
    '/(a+)+$/.test("a".repeat(60) + "b")',
    '/(.*)*x/.test("a".repeat(1e5))',
    'new RegExp("(".repeat(1e5))',
    '"a".repeat(1e6).replace(/a/g, "$`")',
  ],
  ...[
    '2n ** (2n ** 40n)',
    '(1n << 30000000n).toString()',
    '"x".padEnd(2 ** 30)',
    'Array(1e7).join("abc")',
    'new Uint8Array(1e9)',
  ],
  ...[
    'let n = 1; for (let i = 0; i < 20000; i++) n = [n]; n',
    'const a = []; a[0] = a; JSON.stringify(a)',
    'Symbol("x".repeat(1e8))',
  ],
  ...[
    'const o = {}; o.toString = () => o; o + ""',
    '[].concat(...Array(1e5).fill(Array(1e3)))',
    'Array.from({ length: 2 ** 31 })',
  ],
  ...[
    '"x".repeat(1e6)',
    'throw "x".repeat(1e6)',
    'throw new Error("x".repeat(1e7))',
    'print("x".repeat(1e7))',
    'for (;;) Promise.reject(1)',
  ],
  ...[
    'const p = new Proxy({}, { get: () => p }); p.a.b.c',
    'new Proxy([], { get: (t, k) => (k === "length" ? 2 ** 53 : 1) })',
  ],
  ...[
    'Array.from({ length: 1e6 }, () => new WeakRef({}))',
    'const s = []; for (let i = 0; i < 1e7; i++) s.push(Symbol(i))',
  ],
  ...[
    'new Date(8.64e15 + 1) + ""',
    'structuredClone',
    '[1, 2].sort(() => { for (;;); })',
    '"a".replace(/a/, () => { for (;;); })',
  ],
];

export const TRICKS: string[] = [
  ...[
    '({ get x() { throw 1 } })',
    '({ toJSON() { throw new Error("no") } })',
    '({ toJSON() { for (;;); } })',
    '({ toString() { throw 1 } }) + ""',
  ],
  ...[
    'throw { get message() { throw 1 } }',
    'throw { toString() { throw 1 } }',
    'const e = new Error(); Object.defineProperty(e, "message", { get() { throw 1 } }); throw e',
  ],
  ...[
    'const e = new Error(); Object.defineProperty(e, "name", { get() { for (;;); } }); throw e',
    'throw null',
    'throw undefined',
    'throw Symbol("x")',
  ],
  ...[
    'new Proxy({}, { get() { throw 1 }, ownKeys() { throw 2 } })',
    'new Proxy(() => {}, { apply() { for (;;); } })',
    'Promise.reject({ get message() { throw 1 } })',
  ],
  ...[
    '({ then(f) { for (;;); } })',
    '({ then(f) { f(this) } })',
    '(async () => { throw { toString: 1 } })()',
    'Promise.reject()',
    'Promise.all([new Promise(() => {})])',
  ],
  ...[
    'Symbol.iterator',
    '"\\ud800"',
    '"\\u0000"',
    '2n ** 64n',
    'NaN',
    '-0',
    'undefined',
    '() => 1',
    'class A {}',
    'new (class { #x = 1 })()',
  ],
  ...[
    'print({ toString() { throw 1 } })',
    'print(new Proxy({}, {}))',
    'print(...Array(1e5).fill(1))',
    'print.call(null, 1)',
    'print.apply(null, { length: 1e6 })',
  ],
  ...[
    'globalThis.then = (f) => f(1)',
    'Object.prototype.toJSON = () => { for (;;); }; ({})',
    'String.prototype.slice = () => { throw 1 }; "x"',
  ],
  ...[
    '"use strict"; undeclared = 1',
    'let x =',
    '#!',
    '\u0000',
    '`${',
    'await 1',
    'return 1',
    'import.meta',
    'new.target',
    'debugger',
    'with ({}) 1',
  ],
];
