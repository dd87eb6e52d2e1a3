/** Tests that rows of slots are uploaded to the GPU together. */
import { expect, test } from 'vitest';
import type { Gpu, View } from '../../src/gpu/device.ts';
import { SlotRows } from '../../src/rollout/decode/slotRows.ts';
import { stub } from '../stub.ts';

test('neighbours are one write, the last of several rows counts, and nothing is written twice', () => {
  const writes: [number, number[]][] = [];
  const gpu = stub<Gpu>({
    buffer: () => stub<View>({}),
    write: (_: View, data: Uint32Array, at: number) => writes.push([at, [...data]]),
  });
  const rows = new SlotRows(gpu, 'test', 16, 2);
  for (const slot of [5, 3, 9, 4, 0]) rows.set(slot, [slot, 0]);
  rows.set(4, [4, 1]);
  rows.flush();
  expect(writes).toEqual([
    [0, [0, 0]],
    [6, [3, 0, 4, 1, 5, 0]],
    [18, [9, 0]],
  ]);
  rows.flush();
  expect(writes.length).toBe(3);
});
