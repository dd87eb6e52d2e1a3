import { expect, test } from 'vitest';
import { loraUp } from '../../src/gpu/ops/lora_up.ts';
import { expectWithin, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, U, withRoom } from './check.ts';
import { withGpu } from './gpu.ts';
import { LORA_CASES, loraValues } from './loraCases.ts';

test.each(LORA_CASES)('y += scale * t B: $name', (shape) =>
  withGpu(async (gpu) => {
    const { t, b, old, y: want, ySize } = loraValues(shape);
    const y = withRoom(gpu, 'y', old);
    loraUp(gpu, { ...shape, t: gpu.buffer('t', t), b: gpu.buffer('b', b), y });
    const got = await readRoomy(gpu, y, old.length);
    // Rounding: R products and sums, the product with scale, the sum with y.
    expectWithin(got, want, (i) => (shape.R + 3) * U * ySize[i]);
  }),
);

test('columns without an adapter, and all of them where B is 0, keep their bits', () =>
  withGpu(async (gpu) => {
    const shape = LORA_CASES[2];
    const { t, b, old } = loraValues(shape);
    const [kept, zero] = [withRoom(gpu, 'y', old), withRoom(gpu, 'y', old)];
    loraUp(gpu, { ...shape, t: gpu.buffer('t', t), b: gpu.buffer('b', b), y: kept });
    loraUp(gpu, { ...shape, t: gpu.buffer('t', t), b: gpu.buffer('b', new Float32Array(b.length)), y: zero });
    expect(await readRoomy(gpu, zero, old.length)).toEqual(old);
    (await readRoomy(gpu, kept, old.length)).forEach((value, i) => {
      if (i % shape.Y >= 13 && i % shape.Y < 21) expect(value).toBe(old[i]);
      else expect(value).not.toBe(old[i]);
    });
  }));

test('a grid folded over both dimensions', () =>
  withGpu(async (gpu) => {
    const [N, J] = [Math.ceil(FOLD_THREADS / 3) * 4, 3];
    const t = pattern(N);
    const y = withRoom(gpu, 'y', new Float32Array(N * J));
    const b = gpu.buffer('b', Float32Array.of(1, 2, 4));
    const shape = { N, R: 1, Y: J, spans: [{ column: 0, width: J }], scale: 1 };
    loraUp(oneThreadGroups(gpu), { ...shape, t: gpu.buffer('t', t), b, y });
    expectWithin(
      await readRoomy(gpu, y, N * J),
      Float64Array.from({ length: N * J }, (_, i) => t[Math.floor(i / J)] * 2 ** (i % J)),
      () => 0,
    );
  }));
