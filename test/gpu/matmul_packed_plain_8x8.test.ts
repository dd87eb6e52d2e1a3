import { expect, test } from 'vitest';
import { matmulPacked } from '../../src/gpu/ops/matmulPacked.ts';
import { withGpu } from './gpu.ts';
import { makePackedCase, testPackedTile } from './packedSuite.ts';

testPackedTile('plain_8x8');

test('a matrix whose sides are no multiples of 8 is refused', () =>
  withGpu((gpu) => {
    const { x, packed } = makePackedCase(gpu, [1, 8, 12], 'int4');
    const args = { x: gpu.buffer('x', x), b: packed, y: gpu.buffer('y', 64), M: 1, N: 8, K: 12 };
    expect(() => matmulPacked(gpu, args)).toThrow('A packed product is [12, 8]; both must be multiples of 8.');
    return Promise.resolve();
  }));
