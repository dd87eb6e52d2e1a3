/** One class per thing a caller handles; everything else is RangeError, TypeError or Error. */

/** The device is gone (driver reset, GPU process crash, destroy). A new device can be asked for. */
export class DeviceLostError extends Error {
  override name = 'DeviceLostError';
  constructor(reason: string, message: string) {
    super(
      `GPU device lost ("${reason}": ${message}). Its memory is lost. Create a new engine and resume from a checkpoint.`,
    );
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

/** The user has stopped a run before it could end by itself. */
export class StoppedError extends Error {
  override name = 'StoppedError';
}

/** A run's folder is not there any more, or is not the one that the run has made. */
export class FolderGoneError extends Error {
  override name = 'FolderGoneError';
}

/** Bad input: the message says what was found, what is allowed and what to do. The command line exits with 2 on it. */
export class InputError extends Error {
  override name = 'InputError';
}

/** A setting that cannot run. Its message is the source, e.g. a file's name, and the sentence. */
export class ConfigError extends InputError {
  /** The key that the sentence is about, e.g. `actor.clipRatioHigh`; '' = the config as a whole. */
  readonly path: string;
  /** All keys that the sentence is about, `path` first. */
  readonly keys: readonly string[];
  /** The message without its source. */
  readonly sentence: string;
  constructor(source: string, keys: readonly string[], sentence: string) {
    super(`${source}: ${sentence}`);
    this.path = keys[0] ?? '';
    this.keys = keys;
    this.sentence = sentence;
  }
}

/** Code of the user's own (reward, agent loop, loss, advantage, ...) threw, took too long or returned what it must not; `cause` = what it threw. */
export class UserCodeError extends InputError {
  override name = 'UserCodeError';
  /** What failed and how, e.g. "reward threw": equal for faults of one kind. */
  readonly kind: string;
  constructor(kind: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}

/** Losses, gradients, log-probs, advantages or weights were not finite, step after step; the message says what, and what came before. */
export class NotFiniteError extends Error {
  override name = 'NotFiniteError';
  /** The last step that was tried. */
  readonly step: number;
  constructor(step: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.step = step;
  }
}

/** Words for anything that was thrown. Never throws: `message` may be a getter that does, and not every object has a text. */
export function describe(error: unknown): string {
  try {
    if (!(error instanceof Error)) return typeof error === 'object' && error !== null ? textOf(error) : String(error);
    const message = String(error.message);
    return message === '' ? String(error.name) : message;
  } catch {
    return `an error without a readable message (${typeof error})`;
  }
}

/** "[object Object]" would say nothing. */
function textOf(thrown: unknown): string {
  const text = String(thrown);
  return text.startsWith('[object ') ? JSON.stringify(thrown).slice(0, 200) : text;
}

/** A value as a sentence shows it: the start of its JSON, or its type if it has none. Never throws. */
export function shownValue(value: unknown): string {
  if (typeof value === 'number' || value === undefined) return String(value);
  try {
    return (JSON.stringify(value) ?? typeof value).slice(0, 100);
  } catch {
    return typeof value === 'object' ? 'an object that JSON cannot hold' : typeof value;
  }
}

/** The stack of an error, or undefined. Never throws. */
export function stackOf(error: unknown): string | undefined {
  try {
    const { stack } = error as Error;
    return typeof stack === 'string' ? stack : undefined;
  } catch {
    return undefined;
  }
}

/** " (at reward (file.ts:3:7))", the place of an error that was thrown, or nothing. */
function placeOf(error: unknown): string {
  const place = /^ {4}at .*$/m.exec(stackOf(error) ?? '')?.[0].trim();
  return place === undefined ? '' : ` (${place})`;
}

/** Like `instanceof`, for anything that was thrown. Never throws: a proxy may refuse to say what it is. */
export function isA<T>(error: unknown, kind: new (...args: never[]) => T): error is T {
  try {
    return error instanceof kind;
  } catch {
    return false;
  }
}

/** True if a new engine on a new device can continue. Errors of an engine come from its worker with their names, or as text alone. */
export function isEngineLost(error: unknown): boolean {
  const { name, message } = error instanceof Error ? error : new Error(String(error));
  const isLost = ['DeviceLostError', 'WorkerDiedError', 'NoAdapterError'].includes(name);
  return isLost || /device (was |is )?lost/i.test(message);
}

/**
 * Converts what the user's code threw into an error that names it. Failures of the device are not user code and stay unchanged.
 * @param kind the code in a word, e.g. 'reward'
 * @param what the code and where it ran, e.g. 'The reward of problem "train-3"'
 * @param expected what it should have done, as a sentence without its full stop
 */
export function blame(kind: string, what: string, error: unknown, expected: string): Error {
  for (const known of [UserCodeError, DeviceLostError, OutOfMemoryError, GpuError]) if (isA(error, known)) return error;
  const message = isA(error, InputError)
    ? error.message
    : `${what} threw "${describe(error).slice(0, 1000)}"${placeOf(error)}. ${expected}.`;
  return new UserCodeError(`${kind} threw`, message, { cause: error });
}
