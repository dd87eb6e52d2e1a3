import { expect, test } from 'vitest';
import { recordDraw } from '../../src/gpu/ops/adjust_logits.ts';
import { DETAIL_WIDTH } from '../../src/gpu/ops/adjustWidths.ts';
import { rng } from '../random.ts';
import { U } from './check.ts';
import { withGpu } from './gpu.ts';
import { logProbsOf } from './sampleReference.ts';

const POISON = 0xdeadbeef;
const bits = (x: number) => new Uint32Array(Float32Array.of(x).buffer)[0];

test.each([1, 63, 64, 65, 131])('log-prob, log mass, count and entropy of %i samples', (n) =>
  withGpu(async (gpu) => {
    const [V, R, cap] = [11, 3, 4];
    const logits = rng(n).normals(R * V, 2);
    // Slot s samples its (s % 3 + 1)-th token, which is s % V, from row s % R at the temperature of that row. The sequence of every fifth
    // slot is done.
    const temperature = (s: number) => [1, 0.5, 0][s % R];
    const invT = (s: number) => (temperature(s) === 0 ? 0 : 1 / temperature(s));
    const rowLogProbs = Array.from({ length: R }, (_, r) =>
      logProbsOf(logits.subarray(r * V, (r + 1) * V), temperature(r)),
    );
    const entropyOf = (logp: Float64Array) => -logp.reduce((sum, l) => sum + Math.exp(l) * l, 0);
    const stats = Float32Array.from({ length: R * 2 }, (_, i) => {
      const r = i >> 1;
      return i % 2 ? entropyOf(rowLogProbs[r]) : logits[r * V] / (temperature(r) || 1) - rowLogProbs[r][0];
    });
    const drew = (s: number) => (s % 5 === 4 ? 0 : 1);
    const slots = Array.from({ length: n }, (_, s) => s);
    const u32 = (label: string, data: number[]) => gpu.buffer(label, Uint32Array.from(data));
    const before = new Uint32Array(n * cap * 3).fill(POISON);
    for (const s of slots) before.set([s % V, bits(-1.5 - s / 100), bits(-0.25)], (s * cap + (s % 3)) * 3);
    const [drawn, counts, details] = [
      gpu.buffer('drawn', before),
      gpu.buffer('counts', new Uint32Array(n * V).fill(0x80000002)),
      gpu.buffer('details', new Uint32Array(n * cap * DETAIL_WIDTH).fill(POISON)),
    ];
    recordDraw(gpu, {
      entries: u32(
        'entries',
        slots.flatMap((s) => [s, POISON, s % R, drew(s)]),
      ),
      logits: gpu.buffer('logits', logits),
      stats: gpu.buffer('stats', stats),
      control: u32(
        'control',
        slots.flatMap((s) => [1, 1, 1, bits(invT(s)), 1, 1, 1, 1]),
      ),
      state: u32(
        'state',
        slots.flatMap((s) => [s % V, POISON, (s % 3) + 1, POISON]),
      ),
      drawn,
      counts,
      details,
      n,
      V,
      cap,
    });
    const after = (await gpu.read(drawn, counts, details)).map((b) => new Uint32Array(b));
    const f32 = after.map((b) => new Float32Array(b.buffer));
    for (const s of slots) {
      const at = (s * cap + (s % 3)) * 3;
      if (!drew(s)) {
        expect([...after[0].subarray(at, at + 3)]).toEqual([...before.subarray(at, at + 3)]);
        continue;
      }
      const want = rowLogProbs[s % R][s % V];
      const bound = 8 * U * (Math.abs(want) + 24);
      expect(after[0][at]).toBe(s % V);
      expect(Math.abs(f32[0][at + 1] - want)).toBeLessThan(bound);
      expect(Math.abs(f32[0][at + 2] - (want - (-1.5 - s / 100 + 0.25)))).toBeLessThan(bound);
      expect(Math.abs(f32[2][(s * cap + (s % 3)) * DETAIL_WIDTH] - entropyOf(rowLogProbs[s % R]))).toBeLessThan(bound);
    }
    const drawCount = slots.filter(drew).length;
    expect(after[1].filter((c) => c === 0x80000003).length).toBe(drawCount);
    expect(slots.every((s) => after[1][s * V + (s % V)] === 0x80000002 + drew(s))).toBe(true);
    expect(after[0].filter((w, i) => w !== before[i]).length).toBeLessThanOrEqual(2 * drawCount);
    expect(after[2].filter((w) => w !== POISON).length).toBe(drawCount);
  }),
);
