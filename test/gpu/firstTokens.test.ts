/** Kernels compile while tokens are generated already: another tile stands in for one that is missing; training waits for it. */
import { expect, test } from 'vitest';
import { Gpu } from '../../src/gpu/device.ts';
import { chooseMatmul, matmulKernel, matmulTable } from '../../src/gpu/ops/matmul.ts';
import { prepareFirstTokens } from '../../src/model/kernels/prepare.ts';
import { tinyConfig } from './tinyModel.ts';

test('products of many rows take a smaller tile until theirs is compiled', async () => {
  const gpu = await Gpu.create();
  await prepareFirstTokens(gpu, tinyConfig);
  const [, largest] = matmulTable(gpu).at(-1)!;
  expect(gpu.isCompiling(matmulKernel(largest))).toBe(true);
  const { pipelines } = gpu.counters;
  const meanwhile = chooseMatmul(gpu, 1000, 384);
  expect(meanwhile).toBe(matmulTable(gpu).at(-2)![1]);
  await gpu.compiling;
  expect(gpu.compiling).toBeUndefined();
  expect(gpu.counters.pipelines).toBeGreaterThan(pipelines);
  expect(chooseMatmul(gpu, 1000, 384)).toBe(largest);
  gpu.destroy();
}, 120_000);
