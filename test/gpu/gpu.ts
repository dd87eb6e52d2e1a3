import { expect } from 'vitest';
import { Gpu, type View } from '../../src/gpu/device.ts';

let shared: { file: string | undefined; gpu: Promise<Gpu> } | undefined;

/** Returns one Gpu per test file. A missing adapter is a failure, never a skip. */
export function testGpu(): Promise<Gpu> {
  const file = expect.getState().testPath;
  if (shared?.file !== file) shared = { file, gpu: Gpu.create() };
  return shared!.gpu;
}

/** Runs `body` and fails if WebGPU reported any error meanwhile, even one without an effect on the results. */
export async function withGpu(body: (gpu: Gpu) => Promise<void> | void): Promise<void> {
  const gpu = await testGpu();
  const scopes = ['internal', 'out-of-memory', 'validation'] as const;
  for (const scope of scopes) gpu.device.pushErrorScope(scope);
  let failure: unknown;
  try {
    await body(gpu);
  } catch (error) {
    failure = error;
  }
  const reports: string[] = [];
  for (const _ of scopes) {
    const error = await gpu.device.popErrorScope();
    if (error) reports.push(error.message);
  }
  if (reports.length > 0) throw new Error(`WebGPU reported:\n${reports.join('\n')}`, { cause: failure });
  if (failure) throw failure;
}

/** Creates an output buffer full of NaN, so that an element that the kernel does not write cannot pass. */
export const poisoned = (gpu: Gpu, label: string, n: number): View => gpu.buffer(label, new Float32Array(n).fill(NaN));
