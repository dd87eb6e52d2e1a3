/** Tests every tile of the product with packed weights that this adapter runs. */
import { describe, expect, test } from 'vitest';
import { namesOf, PACKED_TILES } from '../../kernels/tiles.ts';
import { matmulPacked, packedRunsOn } from '../../src/gpu/ops/matmulPacked.ts';
import { testGpu, withGpu } from './gpu.ts';
import { makePackedCase, testPackedTile } from './packedSuite.ts';

const adapter = await testGpu();

for (const tile of namesOf(PACKED_TILES))
  describe.skipIf(!packedRunsOn(adapter, tile))(`matmul_packed_${tile}`, () => testPackedTile(tile));

test('a matrix whose sides are no multiples of 8 is refused', () =>
  withGpu((gpu) => {
    const { x, packed } = makePackedCase(gpu, [1, 8, 12], 'int4');
    const args = { x: gpu.buffer('x', x), b: packed, y: gpu.buffer('y', 64), M: 1, N: 8, K: 12 };
    expect(() => matmulPacked(gpu, args)).toThrow('A packed product is [12, 8]; both must be multiples of 8.');
    return Promise.resolve();
  }));
