/** Counters of a device since it was opened. A step in steady state changes only dispatches, submits and mappedBytes. */
export interface GpuCounters {
  /** Number of existing buffers, those for read-backs included. */
  buffers: number;
  /** Bytes of all buffers. */
  bytes: number;
  /** Bytes of the buffers for read-backs and uploads; a part of `bytes`. */
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
