/** Grids folded by hand: `Gpu.dispatch` folds past 65535 workgroups, and kernels find their place in any fold. */

/** Workgroups two in a row and as many rows as it takes, while `record` runs. */
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
