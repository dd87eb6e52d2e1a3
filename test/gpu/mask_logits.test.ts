import { expect, test } from 'vitest';
import { maskLogits, maskWords } from '../../src/gpu/ops/mask_logits.ts';
import { rng } from '../random.ts';
import { expectSame, readRoomy, roomy, SIZES } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

const FORBIDDEN = Math.fround(-1e30);
const POISON = 0xdeadbeef;

test.each(SIZES)('forbidden tokens cannot be sampled, and all others keep their bits, V=%i', (V) =>
  withGpu(async (gpu) => {
    const n = 5;
    const r = rng(V);
    const W = maskWords(V);
    // Entry i uses slot (6 - 2 i) mod 7. The sequence of entry 3 is done; the mask of entry 4 allows every token.
    const slotOf = (i: number) => (6 - 2 * i + 7) % 7;
    const masks = Uint32Array.from({ length: 7 * W }, () => Math.floor(r.uniform() * 2 ** 32));
    masks.fill(0xffffffff, slotOf(4) * W, slotOf(4) * W + W);
    const before = r.normals(n * V, 3);
    const adjusted = roomy(gpu, 'adjusted', n * V);
    gpu.write(adjusted, before);
    const entries = Uint32Array.from(
      Array.from({ length: n }, (_, i) => [slotOf(i), POISON, POISON, i === 3 ? 0 : 1]).flat(),
    );
    maskLogits(gpu, { entries: gpu.buffer('entries', entries), masks: gpu.buffer('masks', masks), adjusted, n, V });
    const want = before.map((z, k) => {
      const [i, j] = [Math.floor(k / V), k % V];
      const allowed = (masks[slotOf(i) * W + (j >>> 5)] >>> (j & 31)) & 1;
      return i === 3 || allowed ? z : FORBIDDEN;
    });
    expectSame(await readRoomy(gpu, adjusted, n * V), want);
  }),
);

test('a buffer that is too small is refused before any GPU work', () =>
  withGpu((gpu) => {
    const views = { entries: poisoned(gpu, 'entries', 8), masks: poisoned(gpu, 'masks', 2) };
    expect(() => maskLogits(gpu, { ...views, adjusted: poisoned(gpu, 'small', 65), n: 2, V: 33 })).toThrow(
      'mask_logits adjusted [n, V] needs 66 values (264 bytes) but got a view of 260 bytes of "small".',
    );
  }));
