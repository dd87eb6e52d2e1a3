/** Tests that pipelines can compile while other pipelines replace them, so that no caller waits for the compilation. */

import { expect, test, vi } from 'vitest';
import type { GpuCounters } from '../../src/gpu/counters.ts';
import type { Kernel } from '../../src/gpu/kernel.ts';
import { Pipelines } from '../../src/gpu/pipelines.ts';
import { stub } from '../stub.ts';

vi.stubGlobal('GPUShaderStage', { COMPUTE: 4 });

test('a pipeline that others replace is never awaited while it compiles', async () => {
  let compiled!: (pipeline: object) => void;
  const device = {
    ...{ createShaderModule: () => ({}), createPipelineLayout: () => ({}), createBindGroupLayout: () => ({}) },
    createComputePipelineAsync: () => new Promise((resolve) => (compiled = resolve)),
  };
  const pipelines = new Pipelines(device as unknown as GPUDevice, stub<GpuCounters>({ pipelines: 0 }));
  const kernel = stub<Kernel>({
    name: 'large',
    id: 0,
    bindings: [],
    paramsBinding: 0,
    paramsBytes: 16,
    code: '',
  });
  pipelines.prepareOnceWorth([kernel], 10);
  pipelines.standIn(kernel, 9);
  expect([pipelines.isCompiling(kernel), compiled]).toEqual([true, undefined]);
  pipelines.standIn(kernel, 2);
  expect(pipelines.compiling).toBeUndefined();
  compiled({});
  for (let i = 0; i < 20; i++) {
    await Promise.resolve();
    expect(pipelines.compiling).toBeUndefined();
  }
  expect(pipelines.isCompiling(kernel)).toBe(false);
});
