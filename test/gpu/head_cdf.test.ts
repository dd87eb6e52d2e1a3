import { expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { headCdf } from '../../src/gpu/ops/head.ts';
import { sample } from '../../src/gpu/ops/sample.ts';
import { headCdf as reference } from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { expectWithin, f64, readRoomy, roomy, U } from './check.ts';
import { isFull } from './full.ts';
import { foldedByTwo } from './fold.ts';
import { withGpu } from './gpu.ts';
import { describeHead, HEAD_CASES, type HeadCase, headInputs, headReference, identity, largest } from './headCases.ts';
import { uniformOf } from './sampleReference.ts';
import { stub } from '../stub.ts';

/** Checks the cumulative probabilities of entries whose row is in [firstRow, firstRow + rows). Other entries must stay unchanged. */
async function check(c: HeadCase, firstRow: number, rows: number): Promise<void> {
  const { V, temperature } = c;
  const { logits, entryRow, targets } = headInputs(c);
  const E = targets.length;
  const { lse } = headReference(logits, V, { entryRow, targets }, temperature);
  const want = reference(f64(logits), identity(V), V, { entryRow, targets }, temperature);
  await withGpu(async (gpu) => {
    const cdf = roomy(gpu, 'cdf', E * 3);
    headCdf(gpu, {
      logits: gpu.buffer('logits', logits.slice(firstRow * V, (firstRow + rows) * V)),
      stats: gpu.buffer(
        'stats',
        Float32Array.from({ length: 2 * rows }, (_, i) => (i % 2 ? NaN : lse[firstRow + (i >> 1)])),
      ),
      entryRow: gpu.buffer('entryRow', entryRow),
      targets: gpu.buffer('targets', targets),
      cdf,
      E,
      R: rows,
      V,
      firstRow,
      temperature,
    });
    const got = await readRoomy(gpu, cdf, E * 3);
    const inside = (e: number) => entryRow[e] >= firstRow && entryRow[e] < firstRow + rows;
    for (const e of [...entryRow.keys()].filter((e) => !inside(e)))
      expect([...got.slice(e * 3, e * 3 + 3)]).toEqual([NaN, NaN, NaN]);
    const seen = [...entryRow.keys()].filter(inside);
    const column = (i: number) => Float32Array.from(seen, (e) => got[e * 3 + i]);
    const pick = (values: Float64Array) => seen.map((e) => values[e]);
    // Rounding: the argument of exp has an error of 4 U Z, exp of 3 + 2 |x| ulp, and the sum of V roundings. A cumulative probability is at
    // most 1.
    const Z = (2 * largest(logits)) / temperature + Math.log(V);
    const bound = () => U * (8 * Z + 6 + 4 * Z + V + 4);
    expectWithin(column(0), pick(want.below), bound);
    expectWithin(column(1), pick(want.through), bound);
    expectWithin(column(2), new Float64Array(seen.length).fill(1), bound);
  });
}

test.each(HEAD_CASES.map((c) => [describeHead(c), c] as const))('matches float64, %s', (_, c) => check(c, 0, c.R));

test.each([
  [0, 64],
  [64, 64],
  [128, 9],
])('writes only the entries of its chunk, rows %i + %i', (firstRow, rows) =>
  check({ R: 137, V: 13, temperature: 0.7, scale: 2 }, firstRow, rows),
);

test('a grid folded over both dimensions', () =>
  withGpu(async (gpu) => {
    const [E, V] = [101, 3];
    const cdf = roomy(gpu, 'cdf', E * 3);
    const views = {
      logits: gpu.buffer('logits', new Float32Array(V)),
      stats: gpu.buffer('stats', Float32Array.of(Math.log(V), 0)),
      entryRow: gpu.buffer('entryRow', new Uint32Array(E)),
      targets: gpu.buffer(
        'targets',
        Uint32Array.from({ length: E }, (_, e) => e % V),
      ),
      cdf,
      E,
      R: 1,
      V,
      firstRow: 0,
      temperature: 1,
    };
    foldedByTwo(() => headCdf(gpu, views));
    const place = (token: number) => [token, token + 1, V].map((count) => count / V);
    const want = Array.from({ length: E }, (_, e) => place(e % V)).flat();
    expectWithin(await readRoomy(gpu, cdf, E * 3), want, () => 8 * U);
  }));

/** Cases: vocabulary size, temperature, scale of the logits, and whether the kernel has the thread count of a software adapter. */
const DRAWS: [number, number, number, boolean][] = [
  [512, 1, 3, true],
  [61, 0.7, 1, true],
  [4099, 1.3, 6, true],
  [49_152, 1, 3, true],
  [512, 1, 3, false],
  [61, 0.7, 1, false],
  ...(isFull ? [[151_936, 1, 3, true] satisfies [number, number, number, boolean]] : []),
];

// The verification of samples depends on this test: the kernel compares exactly like the sampler, so a token that was sampled on this
// adapter is always inside its interval.
test.each(DRAWS)(
  'brackets every draw of sample.wgsl, V=%i T=%f x%f, as on software: %s',
  (V, temperature, scale, isSoftware) =>
    withGpu(async (gpu) => {
      // An object with the parts of a Gpu that an op uses, which pretends to be a software adapter or not. A software adapter has fewer
      // threads per row.
      const like = stub<Gpu>({ adapter: { ...gpu.adapter, isSoftware }, dispatch: gpu.dispatch.bind(gpu) });
      const draws = 400;
      const logits = rng(V).normals(V, scale);
      const z = f64(logits).map((x) => x / temperature);
      const lse = Math.log(z.reduce((sum, x) => sum + Math.exp(x), 0));
      const [invT, one] = new Uint32Array(Float32Array.of(1 / temperature, 1).buffer);
      const keys = Array.from({ length: draws }, (_, i): [number, number] => [i * 7 + 1, i ^ 0x5a5a]);
      const u32 = (label: string, rows: number[][]) => gpu.buffer(label, Uint32Array.from(rows.flat()));
      const views = { logits: gpu.buffer('logits', logits), stats: gpu.buffer('stats', Float32Array.of(lse, 0)) };
      const drawn = gpu.buffer('drawn', draws * 12);
      const slots = {
        live: u32(
          'live',
          [...keys.keys()].map((slot) => [slot, 0, 0, 0]),
        ),
        control: u32(
          'control',
          keys.map((key) => [...key, 9, invT, 0, one, 0, 0]),
        ),
        stops: u32(
          'stops',
          keys.map(() => Array<number>(4).fill(0xffffffff)),
        ),
        state: u32(
          'state',
          keys.map(() => [0, 5, 0, 0]),
        ),
      };
      sample(like, { ...views, ...slots, drawn, first: 0, n: draws, V, cap: 1 });
      const words = new Uint32Array((await gpu.read(drawn))[0]);
      const tokens = keys.map((_, i) => words[i * 3]);
      expect(new Set(tokens).size).toBeGreaterThan(10);
      const cdf = roomy(gpu, 'cdf', draws * 3);
      const entries = { entryRow: u32('entryRow', [tokens.map(() => 0)]), targets: u32('targets', [tokens]) };
      headCdf(like, { ...views, ...entries, cdf, E: draws, R: 1, V, firstRow: 0, temperature });
      const got = await readRoomy(gpu, cdf, draws * 3);
      const outside = keys.filter((key, i) => {
        const [below, through, total] = got.slice(i * 3, i * 3 + 3);
        const goal = Math.fround(uniformOf(key, 5) * total);
        return !(below <= goal && goal < through);
      });
      expect(outside).toEqual([]);
      expect(Math.abs(got[2] - 1)).toBeLessThan(1e-5);
    }),
);
