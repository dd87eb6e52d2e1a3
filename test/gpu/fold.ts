/** Folds grids by hand. `Gpu.dispatch` folds a grid of more than 65535 workgroups into two dimensions. Kernels must work with any fold. */

/** While `record` runs, folds every grid into rows of two workgroups. */
export function foldedByTwo(record: () => void): void {
  const { prototype } = GPUComputePassEncoder;
  const dispatch = prototype.dispatchWorkgroups;
  prototype.dispatchWorkgroups = function (this: GPUComputePassEncoder, groups) {
    dispatch.call(this, 2, Math.ceil(groups / 2));
  };
  try {
    record();
  } finally {
    prototype.dispatchWorkgroups = dispatch;
  }
}
