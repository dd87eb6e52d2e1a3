/** Compares typed arrays number by number. `expect` would treat every element as a property, which takes seconds for the weights of a model. */

import { expect } from 'vitest';

type Numbers = ArrayLike<number | bigint>;

const isNumbers = (value: unknown): value is Numbers => ArrayBuffer.isView(value) && !(value instanceof DataView);

/** Returns undefined unless both are arrays of one type. `expect` then compares them itself. */
function haveEqualElements(a: unknown, b: unknown): boolean | undefined {
  if (!isNumbers(a) || !isNumbers(b) || a.constructor !== b.constructor) return undefined;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (!Object.is(a[i], b[i])) return false;
  return true;
}

// The files of a process share `expect`.
const shared = globalThis as { comparesArrays?: true };
if (!shared.comparesArrays) expect.addEqualityTesters([haveEqualElements]);
shared.comparesArrays = true;
