/** One class per thing a caller handles; everything else is RangeError, TypeError or Error. */

/** The device is gone (driver reset, GPU process crash, destroy). A new device can be asked for. */
export class DeviceLostError extends Error {
  override name = 'DeviceLostError';
  constructor(reason: string, message: string) {
    super(`GPU device lost ("${reason}": ${message}). Ask for a new device and resume from the last checkpoint.`);
  }
}

/** A buffer could not be allocated, or the plan does not fit the cap. */
export class OutOfMemoryError extends Error {
  override name = 'OutOfMemoryError';
}

/** WebGPU validation or internal error, with the labels of what was recorded. Our bug, not the user's. */
export class GpuError extends Error {
  override name = 'GpuError';
}

/** No adapter at all. */
export class NoAdapterError extends Error {
  override name = 'NoAdapterError';
}

/** Bad input: the message says what was found, what is allowed and what to do. The command line exits with 2 on it. */
export class InputError extends Error {
  override name = 'InputError';
}
