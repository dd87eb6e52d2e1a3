import { expect, test } from 'vitest';
import { dropout } from '../../src/gpu/ops/dropout.ts';
import { rng } from '../random.ts';
import { expectSame, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy, withRoom } from './check.ts';
import { withGpu } from './gpu.ts';

/** Reimplements the hash of the dropout kernel: x of pcg3d. */
function hash(i: number, key: readonly [number, number]): number {
  let [x, y, z] = [i, ...key].map((k) => (Math.imul(k, 1664525) + 1013904223) >>> 0);
  const mix = () => {
    x = (x + Math.imul(y, z)) >>> 0;
    y = (y + Math.imul(z, x)) >>> 0;
    z = (z + Math.imul(x, y)) >>> 0;
  };
  mix();
  [x, y, z] = [x, y, z].map((v) => (v ^ (v >>> 16)) >>> 0);
  mix();
  return x;
}

const expected = (x: Float32Array, p: number, key: readonly [number, number]) =>
  x.map((value, i) => (hash(i, key) >= Math.floor(p * 2 ** 32) ? Math.fround(value * Math.fround(1 / (1 - p))) : 0));

test.each([1, 63, 64, 65, 1000])('the same mask as the hash in TypeScript, over %i values', (n) =>
  withGpu(async (gpu) => {
    const [x, key] = [rng(n).normals(n), [5, 0xfedcba98] as const];
    const y = roomy(gpu, 'y', n);
    dropout(gpu, { x: gpu.buffer('x', x), y, n, p: 0.25, key });
    const want = expected(x, 0.25, key);
    const got = await readRoomy(gpu, y, n);
    got.forEach((value, i) => expect(Math.abs(value - want[i])).toBeLessThanOrEqual(2 ** -23 * Math.abs(want[i])));
    expectSame(
      got.map((v) => Number(v === 0)),
      want.map((v) => Number(v === 0)),
    );
  }),
);

test('adds to y on request; p = 0 keeps everything; keys give different masks; the share of zeros is p', () =>
  withGpu(async (gpu) => {
    const n = 20000;
    const x = gpu.buffer('x', new Float32Array(n).fill(3));
    const masks: string[] = [];
    for (const key of [
      [1, 0],
      [2, 0],
      [1, 1],
    ] as const) {
      const y = withRoom(gpu, 'y', new Float32Array(n).fill(1));
      dropout(gpu, { x, y, n, p: 0.5, key, add: true });
      const got = await readRoomy(gpu, y, n);
      expect([...new Set(got)].sort()).toEqual([1, 7]);
      const zeros = got.filter((v) => v === 1).length;
      expect(Math.abs(zeros / n - 0.5)).toBeLessThan(5 * Math.sqrt(0.25 / n)); // five sigma
      masks.push(got.join());
    }
    expect(new Set(masks).size).toBe(3);
    const y = roomy(gpu, 'y', n);
    dropout(gpu, { x, y, n, p: 0, key: [1, 0] });
    expectSame(await readRoomy(gpu, y, n), new Float32Array(n).fill(3));
  }));

test('a grid folded over both dimensions', () =>
  withGpu(async (gpu) => {
    const x = pattern(FOLD_THREADS);
    const y = roomy(gpu, 'y', x.length);
    dropout(oneThreadGroups(gpu), { x: gpu.buffer('x', x), y, n: x.length, p: 0.5, key: [9, 9] });
    expectSame(
      await readRoomy(gpu, y, x.length),
      expected(x, 0.5, [9, 9]).map((v) => v + 0),
    );
  }));
