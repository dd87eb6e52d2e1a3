/** Tests that kernels can compile while tokens are generated: while a matmul tile is missing, another tile replaces it. */
import { expect, test } from 'vitest';
import { Gpu } from '../../src/gpu/device.ts';
import { chooseMatmul, matmulKernel, matmulNn, matmulTable, WORTH_COMPILING } from '../../src/gpu/ops/matmul.ts';
import { attentionKernels } from '../../src/gpu/ops/attention.ts';
import { prepareFirstTokens } from '../../src/model/kernels/prepare.ts';
import { tinyConfig } from './tinyModel.ts';

test('products of many rows take a smaller tile until theirs is compiled', async () => {
  const gpu = await Gpu.create();
  await prepareFirstTokens(gpu, tinyConfig);
  const [, largest] = matmulTable(gpu).at(-1)!;
  expect(gpu.isCompiling(matmulKernel(largest))).toBe(true);
  const meanwhile = matmulTable(gpu).at(-2)![1];
  expect(chooseMatmul(gpu, 1000, 1024)).toBe(meanwhile);
  await gpu.compiling; // training waits for it
  expect(gpu.compiling).toBeUndefined();
  for (const kernel of attentionKernels(gpu, tinyConfig.headDim)) expect(gpu.isCompiling(kernel)).toBe(false);

  // A software adapter compiles the large tile only when it is worth the time, and no product waits for it. The results do not change.
  const isLater = gpu.adapter.isSoftware;
  expect(gpu.isCompiling(matmulKernel(largest))).toBe(isLater);
  const [M, N, K] = [100, 384, 40];
  const [x, b, y] = [
    gpu.buffer('x', new Float32Array(M * K).fill(0.1)),
    gpu.buffer('b', new Float32Array(K * N).fill(0.3)),
    gpu.buffer('y', M * N * 4),
  ];
  const product = () => {
    matmulNn(gpu, { x, b, y, M, N, K });
    return gpu.readF32(y);
  };
  const before = await product();
  expect(chooseMatmul(gpu, 1000, 1024)).toBe(isLater ? meanwhile : largest);
  chooseMatmul(gpu, M, N, WORTH_COMPILING / (M * N) - 2 * K);
  expect(gpu.compiling).toBeUndefined();
  chooseMatmul(gpu, M, N, K);
  const { pipelines } = gpu.counters;
  expect(await product()).toEqual(before);
  expect(gpu.compiling).toBeUndefined();
  await expect.poll(() => chooseMatmul(gpu, 1000, 1024)).toBe(largest);
  if (isLater) expect(gpu.counters.pipelines).toBeGreaterThan(pipelines);
  expect(await product()).toEqual(before);
  gpu.destroy();
});
