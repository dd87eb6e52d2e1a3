/**
 * Returns the WGSL text of all kernels for this adapter, for grep and review. Many kernels are not files in kernels/ but printed by code.
 */

import { MATMUL_TILES, namesOf } from '../../../kernels/tiles.ts';
import type { Gpu } from '../../gpu/device.ts';
import type { Kernel } from '../../gpu/kernel.ts';
import { attentionKernels } from '../../gpu/ops/attention.ts';
import { matmulKernel, runsOn } from '../../gpu/ops/matmul.ts';
import { packedKernels } from '../../gpu/ops/matmulPacked.ts';

/** Head dimensions of widely used models. */
const HEAD_DIMS = [16, 24, 32, 48, 64, 80, 96, 128];

const written = import.meta.glob<string>('../../../kernels/*.wgsl', { query: '?raw', import: 'default', eager: true });

/**
 * Returns WGSL texts by file name: the hand-written files, every matmul tile that this adapter can run, the matmuls for quantized weights,
 * and attention for the usual head dimensions.
 */
export function kernelTexts(gpu: Gpu): Map<string, string> {
  const printed: Kernel[] = [
    ...namesOf(MATMUL_TILES)
      .filter((variant) => runsOn(gpu, variant))
      .map(matmulKernel),
    ...packedKernels(gpu),
    ...HEAD_DIMS.flatMap((D) => attentionKernels(gpu, D)),
  ];
  return new Map([
    ...Object.entries(written).map(([path, code]) => [path.replace(/^.*\//, ''), code] as const),
    ...printed.map(({ name, code }) => [`${name}.wgsl`, code] as const),
  ]);
}
