import { expect, test } from 'vitest';
import { topLogprobs } from '../../src/gpu/ops/adjust_logits.ts';
import { DETAIL_WIDTH, MAX_ALTERNATIVES } from '../../src/gpu/ops/adjustWidths.ts';
import { rng } from '../random.ts';
import { extrasOf } from './adjustCases.ts';
import { SIZES, U } from './check.ts';
import { withGpu } from './gpu.ts';
import { logProbsOf } from './sampleReference.ts';

const POISON = 0xdeadbeef;
const NONE = 0xffffffff;
const bits = (x: number) => new Uint32Array(Float32Array.of(x).buffer)[0];

test.each(SIZES)('the most likely tokens in order, the first of equals first, V=%i', (V) =>
  withGpu(async (gpu) => {
    const [R, cap] = [3, 2];
    // The logits are rounded to multiples of 1/2, so that many are equal. All logits of row 2 are equal.
    const logits = rng(V)
      .normals(R * V, 2)
      .map((x, i) => (i >= 2 * V ? -1 : Math.round(x * 2) / 2));
    const rows = Array.from({ length: R }, (_, r) => logProbsOf(logits.subarray(r * V, (r + 1) * V), 0.8));
    const wanted = [MAX_ALTERNATIVES, 0, 3, 1, 5];
    const drew = [1, 1, 1, 1, 0];
    const n = wanted.length;
    const u32 = (label: string, data: number[]) => gpu.buffer(label, Uint32Array.from(data));
    const details = gpu.buffer('details', new Uint32Array(n * cap * DETAIL_WIDTH).fill(POISON));
    topLogprobs(gpu, {
      entries: u32(
        'entries',
        wanted.flatMap((_, s) => [s, POISON, s % R, drew[s]]),
      ),
      logits: gpu.buffer('logits', logits),
      stats: gpu.buffer('stats', Float32Array.from(rows.flatMap((row, r) => [logits[r * V] / 0.8 - row[0], NaN]))),
      control: u32(
        'control',
        wanted.flatMap(() => [0, 0, 0, bits(1 / 0.8), 0, 0, 0, 0]),
      ),
      extras: u32(
        'extras',
        wanted.flatMap((topLogprobs) => [...extrasOf({ topLogprobs })]),
      ),
      state: u32(
        'state',
        wanted.flatMap((_, s) => [POISON, POISON, (s % cap) + 1, 0]),
      ),
      details,
      n,
      V,
      cap,
    });
    const [buffer] = await gpu.read(details);
    const [words, floats] = [new Uint32Array(buffer), new Float32Array(buffer)];
    let written = 0;
    wanted.forEach((k, s) => {
      if (!drew[s]) return;
      const row = rows[s % R];
      const order = [...row.keys()].sort((a, b) => logits[(s % R) * V + b] - logits[(s % R) * V + a] || a - b);
      const at = (s * cap + (s % cap)) * DETAIL_WIDTH + 1;
      for (let place = 0; place < k; place++) {
        expect(words[at + place * 2], `slot ${s} place ${place}`).toBe(order[place] ?? NONE);
        written += place < V ? 2 : 1;
        if (place >= V) continue;
        expect(Math.abs(floats[at + place * 2 + 1] - row[order[place]])).toBeLessThan(
          8 * U * (Math.abs(row[order[place]]) + 24),
        );
      }
    });
    expect(words.filter((w) => w !== POISON).length).toBe(written);
  }),
);
