/** Tests prefixes in the KV cache: shared while in use, kept while there is space, and evicted when unused for longest. */
import { expect, test } from 'vitest';
import { PrefixCache } from '../../src/rollout/server/kvCache.ts';

const prompt = (first: number) => Uint32Array.of(first, 7);

test('the least recently used prefix is evicted; one in use never is', () => {
  const cache = new PrefixCache(3, 8);
  const [a, b, c] = [1, 2, 3].map((first) => cache.acquire(prompt(first))!);
  expect(cache.acquire(prompt(4))).toBeUndefined();
  for (const prefix of [a, b, c]) prefix.computed = 2;
  cache.release(b);
  cache.release(a);
  cache.release(cache.acquire(prompt(2))!);
  // a was used least recently: b was requested again since, and c is in use. So a is evicted.
  expect(cache.acquire(prompt(4))!.index).toBe(a.index);
  expect(cache.acquire(prompt(2))).toBe(b);
  expect(cache.acquire(prompt(1))).toBeUndefined();
});
