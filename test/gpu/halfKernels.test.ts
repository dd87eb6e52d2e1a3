/**
 * Tests the 16-bit form of every kernel on values that 16-bit floats represent exactly. Its f32 outputs must equal the 32-bit form's, bit
 * for bit (other tests compare that form to float64). Its 16-bit outputs must be those bits rounded. Products are compared to float64 here
 * as well.
 */
import { describe, expect, test } from 'vitest';
import { MATMUL_TILES, type MatmulVariant, namesOf } from '../../kernels/tiles.ts';
import type { Gpu, View } from '../../src/gpu/device.ts';
import { attention, attentionBwd } from '../../src/gpu/ops/attention.ts';
import { dropout } from '../../src/gpu/ops/dropout.ts';
import { embed } from '../../src/gpu/ops/embed.ts';
import { loraUp } from '../../src/gpu/ops/lora_up.ts';
import { chooseMatmul, matmulNn, matmulTn } from '../../src/gpu/ops/matmul.ts';
import { qkNorm, qkNormBwd } from '../../src/gpu/ops/qk_norm.ts';
import { rmsnorm } from '../../src/gpu/ops/rmsnorm.ts';
import { ropeKv } from '../../src/gpu/ops/rope_kv.ts';
import { swiglu, swigluBwd } from '../../src/gpu/ops/swiglu.ts';
import { transpose } from '../../src/gpu/ops/transpose.ts';
import { rng } from '../random.ts';
import { expectSame, expectWithin, readRoomy, roomy, U, withRoom } from './check.ts';
import { testGpu } from './gpu.ts';
import { halfBuffer, readHalves, rounded, roomyHalves, withHalves } from './halfBuffers.ts';
import { product, reference } from './matmulSuite.ts';

/**
 * Creates the buffers of a case: inputs, and outputs of n values. Each case runs twice: buffers of `half` and `halfOut` are 16-bit floats
 * in one run, and 32-bit in the other.
 */
interface Buffers {
  half(n: number, scale?: number): View;
  f32(n: number, scale?: number): View;
  u32(values: ArrayLike<number>): View;
  halfOut(n: number): View;
  f32Out(n: number): View;
  /** Input and output. */
  f32Sum(n: number): View;
  halfSum(n: number): View;
}

/** Records an op on the buffers of `b` with both forms of the kernel, and compares the results. */
async function compare(gpu: Gpu, record: (gpu: Gpu, b: Buffers) => void): Promise<void> {
  const runs: { view: View; n: number; half: boolean }[][] = [];
  for (const halves of [false, true]) {
    const r = rng(17);
    const outputs: { view: View; n: number; half: boolean }[] = [];
    runs.push(outputs);
    const out = (view: View, n: number, half: boolean): View => {
      outputs.push({ view, n, half });
      return view;
    };
    const values = (n: number, scale = 1) => rounded(r.normals(n, scale));
    const halfIn = (data: Float32Array) => (halves ? halfBuffer(gpu, 'half', data) : gpu.buffer('plain', data));
    record(gpu, {
      half: (n, scale) => halfIn(values(n, scale)),
      f32: (n, scale) => gpu.buffer('f32', values(n, scale)),
      u32: (data) => gpu.buffer('u32', Uint32Array.from(data)),
      halfOut: (n) => out(halves ? roomyHalves(gpu, 'out', n) : roomy(gpu, 'out', n), n, halves),
      f32Out: (n) => out(roomy(gpu, 'out', n), n, false),
      f32Sum: (n) => out(withRoom(gpu, 'out', values(n)), n, false),
      halfSum: (n) => {
        const data = new Float32Array(n + 67).fill(NaN); // like roomyHalves
        data.set(values(n));
        return out(halves ? halfBuffer(gpu, 'out', data) : gpu.buffer('out', data), n, halves);
      },
    });
  }
  const [plain, half] = runs;
  expect(plain.length).toBeGreaterThan(0);
  for (const [i, { view, n }] of plain.entries()) {
    const want = await readRoomy(gpu, view, n);
    if (!half[i].half) expectSame(await readRoomy(gpu, half[i].view, n), want);
    else expectSame(await readHalves(gpu, half[i].view, n), rounded(want));
  }
}

const heads = (N: number, H: number, K: number, D: number) => ({ N, H, K, D });
/** Returns attention ranges [N, 4] for a prompt of `prefix` rows, followed by one sample. */
const ranges = (N: number, prefix: number) =>
  Array.from({ length: N }, (_, n) => (n < prefix ? [0, 0, 0, n + 1] : [0, prefix, prefix, n + 1])).flat();
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);

const CASES: Record<string, (gpu: Gpu, b: Buffers) => void> = {
  'swiglu, odd sizes': (gpu, b) => swiglu(gpu, { gu: b.half(7 * 26, 3), y: b.halfOut(7 * 13), N: 7, F: 13 }),
  'swiglu, one value': (gpu, b) => swiglu(gpu, { gu: b.half(2), y: b.halfOut(1), N: 1, F: 1 }),
  swiglu_bwd: (gpu, b) => swigluBwd(gpu, { gu: b.half(66), dy: b.f32(33), dgu: b.f32Out(66), N: 3, F: 11 }),
  transpose: (gpu, b) => transpose(gpu, { x: b.half(13 * 9), y: b.halfOut(13 * 9), N: 13, C: 9 }),
  embed: (gpu, b) => {
    const table = [
      { view: b.half(35), first: 0, rows: 5 },
      { view: b.half(21), first: 5, rows: 3 },
    ];
    embed(gpu, { tokens: b.u32([7, 0, 4, 4, 5]), table, x: b.f32Out(35), N: 5, C: 7 });
  },
  rmsnorm: (gpu, b) =>
    rmsnorm(gpu, { x: b.f32(9 * 21), weight: b.f32(21), y: b.halfOut(189), rstd: b.f32Out(9), N: 9, C: 21, eps: 1e-6 }),
  rope_kv: (gpu, b) => {
    const sizes = heads(5, 3, 1, 6);
    const kvRows = { positions: b.u32([0, 1, 2, 1, 2]), kvRows: b.u32(upTo(5)), table: b.f32(18) };
    ropeKv(gpu, { qkv: b.half(5 * 30), ...kvRows, q: b.halfOut(90), kv: b.halfOut(60), ...sizes });
  },
  'qk_norm and its backward': (gpu, b) => {
    const [sizes, qkv, weight] = [heads(5, 3, 1, 6), b.half(150), b.f32(12)];
    const rstd = b.f32Out(20);
    qkNorm(gpu, { qkv, weight, y: b.halfOut(150), rstd, ...sizes, eps: 1e-6 });
    qkNormBwd(gpu, { qkv, weight, rstd, dqkv: b.f32Sum(150), dweight: b.f32Sum(12), partial: b.f32Out(12), ...sizes });
  },
  lora_up: (gpu, b) => {
    const spans = [
      { column: 1, width: 3 },
      { column: 6, width: 2 },
    ];
    const shape = { N: 7, R: 3, Y: 9, spans, scale: 0.7 };
    loraUp(gpu, { t: b.f32(7 * 6), b: b.f32(15), y: b.halfSum(63), ...shape });
  },
  dropout: (gpu, b) => dropout(gpu, { x: b.half(77), y: b.f32Out(77), n: 77, p: 0.3, key: [1, 2] }),
};
for (const D of [16, 24, 32, 48, 64, 6])
  CASES[`attention and its backward, head dim ${D}`] = (gpu, b) => {
    const [N, H, K] = [13, 4, 2];
    const [q, kv, out, lse] = [b.half(N * H * D), b.half(N * 2 * K * D), b.halfOut(N * H * D), b.f32Out(N * H)];
    const views = { q, kv, ranges: b.u32(ranges(N, 5)), lse };
    attention(gpu, { ...views, out, ...heads(N, H, K, D) });
    const back = { dout: b.f32(N * H * D), queryEnd: b.u32(upTo(N).fill(N)), out: b.half(N * H * D) };
    const grads = { dq: b.f32Out(N * H * D), dkv: b.f32Out(N * 2 * K * D), delta: b.f32Out(N * H) };
    attentionBwd(gpu, { ...views, ...back, ...grads, ...heads(N, H, K, D) });
  };

test.for(Object.keys(CASES))('%s', (name, { skip }) => withHalves(skip, (gpu) => compare(gpu, CASES[name])));

/**
 * Tests only the tiles that this adapter chooses. Tiles for other adapters' subgroups may run here too, but lavapipe compiles their four
 * forms for minutes.
 */
const used = (gpu: Gpu, variant: MatmulVariant) =>
  variant === 'plain_4x4' || [1, 16, 1000].some((M) => chooseMatmul(gpu, M, 8) === variant);
const SHAPES = [
  [1, 1, 1],
  [3, 15, 17],
  [33, 67, 9],
] as const;

describe.each(namesOf(MATMUL_TILES))('matmul_%s', (variant) => {
  const run = (skip: (why: string) => never, body: (gpu: Gpu) => Promise<void>) =>
    testGpu().then((gpu) =>
      used(gpu, variant) ? withHalves(skip, body) : skip(`${variant} is not what this adapter uses`),
    );

  test.for(SHAPES)('outputs in 32 and 16 bits, M=%i N=%i K=%i', ([M, N, K], { skip }) =>
    run(skip, (gpu) =>
      compare(gpu, (_, b) => {
        const sizes = { M, N, K, variant };
        matmulNn(gpu, { x: b.half(M * K), b: b.half(K * N), y: b.halfOut(M * N), bias: b.f32(N), ...sizes });
        matmulNn(gpu, { x: b.half(M * K), b: b.half(K * N), y: b.f32Out(M * N), add: b.f32(M * N), ...sizes });
        matmulNn(gpu, { x: b.f32(M * K), b: b.half(K * N), y: b.f32Out(M * N), ...sizes });
        matmulNn(gpu, { x: b.half(M * K), b: b.f32(K * N), y: b.f32Out(M * N), ...sizes });
        matmulTn(gpu, { a: b.half(K * M), b: b.f32(K * N), y: b.f32Sum(M * N), ...sizes });
        matmulTn(gpu, { a: b.f32(K * M), b: b.half(K * N), y: b.f32Sum(M * N), ...sizes });
      }),
    ),
  );

  test.for(SHAPES)('against float64, M=%i N=%i K=%i', (shape, { skip }) =>
    run(skip, async (gpu) => {
      const { M, N, K, ...plain } = product(shape);
      const [x, b] = [rounded(plain.x), rounded(plain.b)];
      const { want, size } = reference({ M, N, K, x, b });
      const y = roomyHalves(gpu, 'y', M * N);
      matmulNn(gpu, { x: halfBuffer(gpu, 'x', x), b: halfBuffer(gpu, 'b', b), y, M, N, K, variant });
      // Rounding: K products and K - 1 sums in f32, and one conversion to a 16-bit float.
      const bound = (i: number) => (K + 1) * U * size[i] + 2 ** -11 * (1 + K * U) * Math.abs(want[i]) + 2 ** -25;
      expectWithin(await readHalves(gpu, y, M * N), want, bound);
    }),
  );
});
