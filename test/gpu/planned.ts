import { expect } from 'vitest';
import type { GpuCounters } from '../../src/gpu/device.ts';
import { planMemory, type Sizes, totalBytes } from '../../src/workers/memoryPlan.ts';

/** To the byte, but for read-backs: those are as large as the largest so far, and planned as large as they can become. */
export function expectPlanned(sizes: Sizes, { bytes, stagingBytes }: GpuCounters): void {
  const plan = planMemory(sizes);
  const staging = plan.find(({ name }) => name === 'staging')!.bytes;
  expect(totalBytes(plan) - staging).toBe(bytes - stagingBytes);
  expect(stagingBytes).toBeLessThanOrEqual(staging);
}
