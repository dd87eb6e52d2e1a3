/** Compiles ahead what takes long, while the weights are still on their way: in parallel, off the critical path. */

import type { Gpu } from '../../gpu/device.ts';
import { halfForms } from '../../gpu/halves.ts';
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
  const plain = [...matmulKernels(gpu), ...attentionKernels(gpu, headDim)];
  const kernels = half ? halfForms(plain, training) : plain;
  const compiled = kernels.map((kernel) => gpu.prepare(kernel));
  if (uses.rollout) compiled.push(gpu.prepare(sampleKernel, rowThreads(gpu)));
  await Promise.all(compiled);
}

/**
 * Kernels that generation cannot start without. The rest is compiled once its first tokens are there; training waits for that.
 * Until the tiles for many rows are there, a smaller one stands in; on a software adapter, which compiles them for seconds, a
 * short run does without them.
 */
export async function prepareFirstTokens(gpu: Gpu, config: ModelConfig): Promise<void> {
  const first = firstMatmulKernels(gpu);
  const kernels = [...first, ...attentionForwardKernels(gpu, config.headDim)];
  await Promise.all([...kernels.map((kernel) => gpu.prepare(kernel)), gpu.prepare(sampleKernel, rowThreads(gpu))]);
  gpu.prepareLater(attentionKernels(gpu, config.headDim));
  const large = matmulKernels(gpu).filter((kernel) => !first.includes(kernel));
  if (gpu.adapter.isSoftware) gpu.prepareOnceWorth(large, WORTH_COMPILING);
  else gpu.prepareLater(large);
}
