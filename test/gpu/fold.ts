/** Folds grids by hand. `Gpu.dispatch` folds above 65535 workgroups, and kernels must work with any fold. */

/** Dispatches workgroups as rows of two while `record` runs. */
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
