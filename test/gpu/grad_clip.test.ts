import { expect, test } from 'vitest';
import { gradClip, NORM_SLOTS } from '../../src/gpu/ops/adamw.ts';
import { rng } from '../random.ts';
import { readRoomy, roomy } from './check.ts';
import { withGpu } from './gpu.ts';

async function clip(partial: Float32Array, maxNorm: number): Promise<number[]> {
  const result: number[] = [];
  await withGpu(async (gpu) => {
    const view = roomy(gpu, 'clip', 3);
    gradClip(gpu, { partial: gpu.buffer('partial', partial), clip: view, slots: partial.length, maxNorm });
    result.push(...(await readRoomy(gpu, view, 3)));
  });
  return result;
}

test.each([
  [1, 0.5],
  [7, 1e6],
  [NORM_SLOTS, 1],
  [3 * NORM_SLOTS + 1, 0],
])('%i partial sums, maximum norm %d: the scale of torch.nn.utils.clip_grad_norm_', async (slots, maxNorm) => {
  const partial = rng(slots).normals(slots).map(Math.abs);
  const [norm, scale, ok] = await clip(partial, maxNorm);
  const want = Math.sqrt(partial.reduce((sum, x) => sum + x, 0));
  expect(Math.abs(norm / want - 1)).toBeLessThan(slots * 2 ** -24 + 2 ** -21);
  const wantScale = maxNorm > 0 ? Math.min(1, maxNorm / (want + 1e-6)) : 1;
  expect(Math.abs(scale / wantScale - 1)).toBeLessThan(slots * 2 ** -24 + 2 ** -20);
  expect(ok).toBe(1);
});

test('a zero gradient is not scaled', async () => {
  expect(await clip(new Float32Array(9), 1)).toEqual([0, 1, 1]);
});

test.each([
  ['NaN', Float32Array.of(1, NaN, 2)],
  ['infinity', Float32Array.of(1, 2, Infinity)],
  ['a sum past f32', Float32Array.of(3e38, 3e38)],
])('%s in the sums: scale and ok are 0', async (_, partial) => {
  for (const maxNorm of [0, 1]) {
    const [, scale, ok] = await clip(partial, maxNorm);
    expect([scale, ok]).toEqual([0, 0]);
  }
});
