import { expect, test } from 'vitest';
import { NORM_SLOTS } from '../../src/gpu/ops/adamw.ts';
import { newtonSchulz } from '../../src/gpu/ops/newton_schulz.ts';
import { orthogonalized } from './referenceOptimizers.ts';
import { rng } from '../random.ts';
import { expectWithin, f64, orthogonalError, readRoomy, roomy } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

test.each([
  [1, 1],
  [1, 7],
  [7, 1],
  [5, 63],
  [65, 9],
  [33, 33],
  [20, 131],
])('Newton-Schulz of a [%i, %i] matrix', (rows, cols) =>
  withGpu(async (gpu) => {
    const g = rng(rows * 7 + cols).normals(rows * cols, 3e-4);
    const d = Math.min(rows, cols);
    const y = roomy(gpu, 'y', rows * cols);
    const scratch = { gram: poisoned(gpu, 'gram', d * d), square: poisoned(gpu, 'square', d * d) };
    const partial = poisoned(gpu, 'partial', NORM_SLOTS);
    newtonSchulz(gpu, { x: gpu.buffer('x', g), y, ...scratch, partial, rows, cols, scale: 0.5 });
    const want = orthogonalized(f64(g), rows, cols).map((v) => 0.5 * v);
    expectWithin(await readRoomy(gpu, y, rows * cols), want, () => orthogonalError(Math.max(rows, cols)));
    // A check that does not use the reference: the result is nearly orthogonal, so all rows (or columns) have about the same length.
    if (d === 1) return;
    const norms = Array.from({ length: d }, (_, i) =>
      Math.hypot(...want.filter((_, at) => (rows <= cols ? Math.floor(at / cols) : at % cols) === i)),
    );
    expect(Math.min(...norms)).toBeGreaterThan(0.5 * 0.5);
    expect(Math.max(...norms)).toBeLessThan(0.5 * 1.3);
  }),
);
