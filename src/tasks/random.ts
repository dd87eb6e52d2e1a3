/** Seeded random numbers and a hash, for problems and demonstrations. The same key gives the same problem on every machine. */

import { mulberry32 } from '../model/random.ts';

/** A seeded stream of random numbers (mulberry32). */
export interface Rng {
  /** Draws a number in [0, 1). */
  uniform(): number;
  /** Draws an integer from `low` to `high`, both included. */
  int(low: number, high: number): number;
  pick<T>(items: readonly T[]): T;
}

/** Creates a stream whose key is made of any numbers and words. Streams with different keys are unrelated. */
export function keyedRng(...key: (string | number)[]): Rng {
  const uniform = mulberry32(hash(...key));
  const int = (low: number, high: number) => low + Math.floor(uniform() * (high - low + 1));
  return { uniform, int, pick: (items) => items[int(0, items.length - 1)] };
}

/** Returns the numbers below `length` in random order (Fisher-Yates). */
export function permutation(length: number, rng: Rng): number[] {
  const order = Array.from({ length }, (_, i) => i);
  for (let i = length - 1; i > 0; i--) {
    const j = rng.int(0, i);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/** Returns the 32-bit FNV-1a hash of the key's text, followed by murmur3's mixer, so that the low bits alone can be used. */
export function hash(...key: (string | number)[]): number {
  let h = 0x811c9dc5;
  for (const character of key.join('\u0000')) h = Math.imul(h ^ (character.codePointAt(0) ?? 0), 0x01000193);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
