/** Compiles ahead what takes long, while the weights are still on their way: in parallel, off the critical path. */

import type { Gpu } from '../../gpu/device.ts';
import { halfForms } from '../../gpu/halves.ts';
import type { Kernel } from '../../gpu/kernel.ts';
import { attentionForwardKernels, attentionKernels } from '../../gpu/ops/attention.ts';
import { rowThreads } from '../../gpu/ops/grid.ts';
import { firstMatmulKernels, matmulKernels, WORTH_COMPILING } from '../../gpu/ops/matmul.ts';
import { sampleKernel } from '../../gpu/ops/sample.ts';
import type { ModelConfig } from '../config.ts';

/**
 * The tiles of the products, attention and sampling; the other kernels compile in milliseconds at first use, and the policy
 * loss, which is known with the first update, just before it.
 * Without it a software adapter's first step compiles them one after the other, a second for the largest.
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
 * Kernels that generation cannot start without. The rest is compiled once its first tokens are there; training waits for that.
 * Until the tiles for many rows are there, a smaller one stands in.
 */
export async function prepareFirstTokens(gpu: Gpu, config: ModelConfig): Promise<void> {
  const kernels = [...firstMatmulKernels(gpu), ...attentionForwardKernels(gpu, config.headDim)];
  await Promise.all([...kernels.map((kernel) => gpu.prepare(kernel)), gpu.prepare(sampleKernel, rowThreads(gpu))]);
  gpu.prepareLater([...tilesAhead(gpu), ...attentionKernels(gpu, config.headDim)]);
}

/** On a software adapter, which compiles the tiles for most rows for seconds, they wait until they are worth it. */
function tilesAhead(gpu: Gpu): Kernel[] {
  if (!gpu.adapter.isSoftware) return matmulKernels(gpu);
  const first = firstMatmulKernels(gpu);
  gpu.prepareOnceWorth(
    matmulKernels(gpu).filter((kernel) => !first.includes(kernel)),
    WORTH_COMPILING,
  );
  return first;
}
