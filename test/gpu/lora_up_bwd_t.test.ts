import { test } from 'vitest';
import { loraUpBwdT } from '../../src/gpu/ops/lora_up.ts';
import {
  expectWithin,
  FOLD_THREADS,
  oneThreadGroups,
  pattern,
  readRoomy,
  roomy,
  U,
  withSoftwareGrid,
} from './check.ts';
import { withGpu } from './gpu.ts';
import { loraValues, ON_GRIDS } from './loraCases.ts';

test.for(ON_GRIDS)('dt = scale * dy B^T: $name, grid of $grid', (shape) =>
  withGpu(async (gpu) => {
    const { dy, b, dt: want, dtSize } = loraValues(shape);
    const dt = roomy(gpu, 'dt', want.length);
    loraUpBwdT(withSoftwareGrid(gpu, shape.grid === 'software'), {
      ...shape,
      dy: gpu.buffer('dy', dy),
      b: gpu.buffer('b', b),
      dt,
    });
    const widest = Math.max(...shape.spans.map(({ width }) => width));
    expectWithin(await readRoomy(gpu, dt, want.length), want, (i) => (widest + 2) * U * dtSize[i]);
  }),
);

test('a grid folded over both dimensions', () =>
  withGpu(async (gpu) => {
    const [N, R] = [Math.ceil(FOLD_THREADS / 3) * 4, 3];
    const dy = pattern(N);
    const dt = roomy(gpu, 'dt', N * R);
    const b = gpu.buffer('b', Float32Array.of(1, 2, 4));
    const shape = { N, R, Y: 1, spans: [{ column: 0, width: 1 }], scale: 1 };
    loraUpBwdT(oneThreadGroups(gpu), { ...shape, dy: gpu.buffer('dy', dy), b, dt });
    expectWithin(
      await readRoomy(gpu, dt, N * R),
      Float64Array.from({ length: N * R }, (_, i) => dy[Math.floor(i / R)] * 2 ** (i % R)),
      () => 0,
    );
  }));
