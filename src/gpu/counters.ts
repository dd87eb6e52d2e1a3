/** Counts of what a device has created so far. A steady-state step changes only dispatches, submits and mappedBytes. */
export interface GpuCounters {
  /** Existing buffers, for views and for read-backs. */
  buffers: number;
  /** Bytes of all buffers. */
  bytes: number;
  /** Part of `bytes` for read-backs and uploads. */
  stagingBytes: number;
  pipelines: number;
  bindGroups: number;
  dispatches: number;
  submits: number;
  /** Bytes read back so far. */
  mappedBytes: number;
  /** Bytes copied from buffer to buffer so far, without read-backs. */
  copiedBytes: number;
}

/** Returns counters that are all 0. */
export const newCounters = (): GpuCounters => ({
  buffers: 0,
  bytes: 0,
  stagingBytes: 0,
  pipelines: 0,
  bindGroups: 0,
  dispatches: 0,
  submits: 0,
  mappedBytes: 0,
  copiedBytes: 0,
});
