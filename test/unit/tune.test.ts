import { expect, test } from 'vitest';
import { fastest } from '../../src/gpu/tune.ts';

test('each number of rows gets its fastest tile, unless the one for more rows is about as fast', () => {
  const times = [
    { rows: 1, us: { plain_4x1: 10, plain_4x4: 20, workgroup_4x4: 400 } },
    { rows: 8, us: { plain_4x1: 40, plain_4x4: 25, workgroup_4x4: 400 } },
    { rows: 64, us: { plain_4x1: 500, plain_4x4: 99, workgroup_4x4: 100 } },
    { rows: 1024, us: { plain_4x1: 9000, plain_4x4: 3000, workgroup_4x4: 900 } },
  ];
  expect(fastest(times)).toEqual([
    [1, 'plain_4x1'],
    [8, 'plain_4x4'],
    [Infinity, 'workgroup_4x4'],
  ]);
});
