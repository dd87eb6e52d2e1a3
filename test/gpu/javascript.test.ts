/**
 * This test needs no GPU. It is in this folder because files of this folder run both in a page and in Node. Test of all programs:
 * test/unit/javascript.test.ts.
 */
import { expect, test } from 'vitest';
import { runJavascript } from '../../src/extensions/sandbox/javascript.ts';

const LIMITS = { timeMs: 300, clockMs: 60_000, memoryBytes: 16 * 2 ** 20 };

test.each([
  ['6 * 7', '42'],
  ['for (;;);', 'Error: the program ran longer than 300 ms'],
  ['let n = 1; for (let i = 0; i < 20000; i++) n = [n]; n', 'a value that cannot be shown'],
  ['const a = []; for (;;) a.push(new Uint8Array(1e6))', 'Error: InternalError: out of memory'],
  ['typeof fetch + typeof postMessage + typeof self', 'undefinedundefinedundefined'],
  ['1 + 1', '2'],
])('%s', async (code, expected) => expect(await runJavascript(code, LIMITS)).toBe(expected));
