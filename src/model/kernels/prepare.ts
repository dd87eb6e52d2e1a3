/** Compiles slow kernels in advance and in parallel, while the weights are being loaded. */

import type { Gpu } from '../../gpu/device.ts';
import { halfForms } from '../../gpu/halves.ts';
import type { Kernel } from '../../gpu/kernel.ts';
import { attentionForwardKernels, attentionKernels } from '../../gpu/ops/attention.ts';
import { rowThreads } from '../../gpu/ops/grid.ts';
import { firstMatmulKernels, matmulKernels, WORTH_COMPILING } from '../../gpu/ops/matmul.ts';
import { sampleKernel } from '../../gpu/ops/sample.ts';
import type { ModelConfig } from '../config.ts';

/**
 * Compiles the matmul tiles, attention and sampling in advance. All other kernels compile in milliseconds at first use;
 * the policy loss is compiled just before the first update, when it is known. Otherwise the first step on a software
 * adapter would compile these kernels one after another, up to a second each.
 */
export async function prepareKernels(
  gpu: Gpu,
  { headDim }: ModelConfig,
  uses: { rollout: boolean; half?: boolean; training?: boolean },
): Promise<void> {
  const { half = false, training = true } = uses;
  const plain = [...(half ? matmulKernels(gpu) : tilesAhead(gpu)), ...attentionKernels(gpu, headDim)];
  const kernels = half ? halfForms(plain, training) : plain;
  const compiled = kernels.map((kernel) => gpu.prepare(kernel));
  if (uses.rollout) compiled.push(gpu.prepare(sampleKernel, rowThreads(gpu)));
  await Promise.all(compiled);
}

/**
 * Compiles the kernels that generation cannot start without. The others are compiled after the first generated tokens,
 * and training waits for them. Until the matmul tiles for many rows are compiled, a smaller tile is used instead.
 */
export async function prepareFirstTokens(gpu: Gpu, config: ModelConfig): Promise<void> {
  const kernels = [...firstMatmulKernels(gpu), ...attentionForwardKernels(gpu, config.headDim)];
  await Promise.all([...kernels.map((kernel) => gpu.prepare(kernel)), gpu.prepare(sampleKernel, rowThreads(gpu))]);
  gpu.prepareLater([...tilesAhead(gpu), ...attentionKernels(gpu, config.headDim)]);
}

/**
 * Returns the matmul tiles to compile in advance. On a software adapter a tile for many rows takes seconds to compile,
 * so these tiles are compiled later.
 */
function tilesAhead(gpu: Gpu): Kernel[] {
  if (!gpu.adapter.isSoftware) return matmulKernels(gpu);
  const first = firstMatmulKernels(gpu);
  gpu.prepareOnceWorth(
    matmulKernels(gpu).filter((kernel) => !first.includes(kernel)),
    WORTH_COMPILING,
  );
  return first;
}
