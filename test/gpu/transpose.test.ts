import { expect, test } from 'vitest';
import { transpose } from '../../src/gpu/ops/transpose.ts';
import { rng } from '../random.ts';
import { expectSame, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

async function check(x: Float32Array, N: number, fold = false): Promise<void> {
  const C = x.length / N;
  const want = new Float32Array(x.length);
  for (let n = 0; n < N; n++) for (let c = 0; c < C; c++) want[c * N + n] = x[n * C + c];
  await withGpu(async (gpu) => {
    const y = roomy(gpu, 'y', N * C);
    transpose(fold ? oneThreadGroups(gpu) : gpu, { x: gpu.buffer('x', x), y, N, C });
    expectSame(await readRoomy(gpu, y, N * C), want);
  });
}

test.each([
  [1, 1],
  [1, 65],
  [63, 1],
  [7, 11],
  [64, 64],
  [65, 63],
  [131, 17],
])('N=%i C=%i', (N, C) => check(rng(N * 31 + C).normals(N * C), N));

test('a grid folded over both dimensions', () => check(pattern(Math.ceil(FOLD_THREADS / 61) * 61, 104729), 61, true));

test('a buffer that is too small is refused before any GPU work', () =>
  withGpu((gpu) => {
    const v = (n: number) => poisoned(gpu, 'small', n);
    expect(() => transpose(gpu, { x: v(8), y: v(7), N: 2, C: 4 })).toThrow(
      'transpose y [C, N] needs 8 values (32 bytes) but got a view of 28 bytes of "small".',
    );
  }));
