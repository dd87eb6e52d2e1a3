import { expect } from 'vitest';
import type { GpuCounters } from '../../src/gpu/device.ts';
import { planMemory, type Sizes, totalBytes } from '../../src/workers/memoryPlan.ts';

/**
 * Expects the planned bytes exactly, except for read-backs: their buffer is as large as the largest read so far, while the plan contains
 * the largest size that it can reach.
 */
export function expectPlanned(sizes: Sizes, { bytes, stagingBytes }: GpuCounters): void {
  const { otherEngines: _, ...own } = sizes; // the counters are of one device
  const plan = planMemory(own);
  const staging = plan.find(({ name }) => name === 'staging')!.bytes;
  expect(totalBytes(plan) - staging).toBe(bytes - stagingBytes);
  expect(stagingBytes).toBeLessThanOrEqual(staging);
}
