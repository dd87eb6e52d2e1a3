/** The text of every generated kernel, by name: all tiles of the matrix products, and all forms of attention for some head dims. */
import { MATMUL_TILES, namesOf, PACKED_TILES } from '../kernels/tiles.ts';
import type { Gpu } from '../src/gpu/device.ts';
import type { Kernel } from '../src/gpu/kernel.ts';
import { attentionKernels } from '../src/gpu/ops/attention.ts';
import { matmulKernel } from '../src/gpu/ops/matmul.ts';
import { packedKernel } from '../src/gpu/ops/matmulPacked.ts';
import { stub } from './stub.ts';

/** Software adapters with different subgroup sizes, and hardware, because attention has a form for each. */
const ADAPTERS = [0, 4, 8, 32].map((lanes) =>
  stub<Gpu>({ adapter: { isSoftware: lanes < 32, subgroupSize: lanes, subgroupMaxSize: lanes } }),
);

export function printedKernels(headDims: number[]): Map<string, string> {
  const kernels: Kernel[] = [
    ...namesOf(MATMUL_TILES).map(matmulKernel),
    ...namesOf(PACKED_TILES).map(packedKernel),
    ...headDims.flatMap((D) => ADAPTERS.flatMap((gpu) => attentionKernels(gpu, D))),
  ];
  return new Map(kernels.map(({ name, code }) => [name, code]));
}
