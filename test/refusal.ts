/** The sentence by which bad input is refused. */

import { expect } from 'vitest';
import { InputError } from '../src/errors.ts';

/** Returns the message of the InputError that `work` throws. */
export function refusalOf(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    return messageOf(error);
  }
  throw new Error('Nothing was refused.');
}

/** Returns the message of the InputError with which `work` rejects. */
export const refusalBy = (work: Promise<unknown>): Promise<string> =>
  work.then(() => Promise.reject(new Error('Nothing was refused.')), messageOf);

function messageOf(error: unknown): string {
  expect(error).toBeInstanceOf(InputError);
  return (error as InputError).message;
}
