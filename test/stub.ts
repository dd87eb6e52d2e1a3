/** Values of a type that the tested code does not look at closely: parts of objects, and matchers of numbers and texts. */

import { expect } from 'vitest';

/** Any of a type's parts, at any depth. */
type Parts<T> = unknown extends T
  ? T
  : T extends readonly (infer Item)[]
    ? readonly Parts<Item>[]
    : T extends ArrayBufferView | ((...args: never[]) => unknown)
      ? T
      : { [K in keyof T]?: Parts<T[K]> | undefined };

/** Returns the given parts as the whole type. */
export function stub<T>(parts: Parts<NoInfer<T>>): T;
export function stub(parts: unknown): unknown {
  return parts;
}

export const anyNumber = expect.any(Number) as number;
export const containing = (text: string): string => expect.stringContaining(text) as string;

/** Returns a port as the worker whose host listens at its other end. */
export const workerAt = (port: MessagePort, terminate = (): void => {}): Worker =>
  Object.assign(port, { terminate }) as unknown as Worker;
