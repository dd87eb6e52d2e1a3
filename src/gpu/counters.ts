/** Counts of what a device has created so far; a steady step must leave all but dispatches, submits and mappedBytes unchanged. */
export interface GpuCounters {
  /** Buffers that exist, for views and for read-backs. */
  buffers: number;
  /** Bytes of all buffers. */
  bytes: number;
  /** Part of `bytes` that is for read-backs and uploads. */
  stagingBytes: number;
  pipelines: number;
  bindGroups: number;
  dispatches: number;
  submits: number;
  /** Bytes read back so far. */
  mappedBytes: number;
  /** Bytes copied from buffer to buffer so far, read-backs aside. */
  copiedBytes: number;
}

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
