import { test } from 'vitest';
import { loraUpBwdB } from '../../src/gpu/ops/lora_up.ts';
import {
  expectWithin,
  FOLD_THREADS,
  oneThreadGroups,
  pattern,
  readRoomy,
  U,
  withRoom,
  withSoftwareGrid,
} from './check.ts';
import { withGpu } from './gpu.ts';
import { loraValues, ON_GRIDS } from './loraCases.ts';

test.for(ON_GRIDS)('db += scale * t^T dy: $name, grid of $grid', (shape) =>
  withGpu(async (gpu) => {
    const { t, dy, oldB, db: want, dbSize } = loraValues(shape);
    const db = withRoom(gpu, 'db', oldB);
    loraUpBwdB(withSoftwareGrid(gpu, shape.grid === 'software'), {
      ...shape,
      t: gpu.buffer('t', t),
      dy: gpu.buffer('dy', dy),
      db,
    });
    expectWithin(await readRoomy(gpu, db, want.length), want, (i) => (shape.N + 3) * U * dbSize[i]);
  }),
);

test('a grid folded over both dimensions', () =>
  withGpu(async (gpu) => {
    const [J, R] = [FOLD_THREADS, 2];
    const dy = pattern(J);
    const db = withRoom(gpu, 'db', new Float32Array(R * J));
    const t = gpu.buffer('t', Float32Array.of(2, 4));
    const shape = { N: 1, R, Y: J, spans: [{ column: 0, width: J }], scale: 1 };
    loraUpBwdB(oneThreadGroups(gpu), { ...shape, t, dy: gpu.buffer('dy', dy), db });
    expectWithin(
      await readRoomy(gpu, db, R * J),
      Float64Array.from({ length: R * J }, (_, i) => dy[i % J] * (i < J ? 2 : 4)),
      () => 0,
    );
  }));
