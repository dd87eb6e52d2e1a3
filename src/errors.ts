/** Each error that a caller handles has a class of its own. All others are RangeError, TypeError or Error. */

/** The GPU device is lost (driver reset, GPU process crash, destroy). A new device can be requested. */
export class DeviceLostError extends Error {
  override name = 'DeviceLostError';
  constructor(reason: string, message: string) {
    super(
      `GPU device lost ("${reason}": ${message}). Its memory is lost. Create a new engine and resume from a checkpoint.`,
    );
  }
}

/** A GPU buffer could not be allocated, or the memory plan exceeds the limit. */
export class OutOfMemoryError extends Error {
  override name = 'OutOfMemoryError';
}

/** An internal or validation error of WebGPU, with the labels of the recorded work. It is a bug in webgrpo, not the user's. */
export class GpuError extends Error {
  override name = 'GpuError';
}

/** The system has no WebGPU adapter. */
export class NoAdapterError extends Error {
  override name = 'NoAdapterError';
}

/** The user has stopped a run before its last step. */
export class StoppedError extends Error {
  override name = 'StoppedError';
}

/** A run's folder is missing, or another folder has replaced it. */
export class FolderGoneError extends Error {
  override name = 'FolderGoneError';
}

/** Maximum number of characters of a message about bad input. A message can quote a file or a command line of any length. */
const LONGEST_MESSAGE = 600;
/** Matches control characters, line separators, marks that change the direction of a text, and lone surrogates. */
const NOT_PRINTED = /[\p{Cc}\p{Zl}\p{Zp}\p{Cs}\u202a-\u202e\u2066-\u2069]/gu;

/** Returns a message as one line, escaped and truncated, because it can quote any input. */
export function oneLine(message: string): string {
  const text = message.replace(NOT_PRINTED, (character) => {
    const short = JSON.stringify(character).slice(1, -1);
    return short === character ? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}` : short;
  });
  return text.length > LONGEST_MESSAGE ? `${text.slice(0, LONGEST_MESSAGE - 203)}...${text.slice(-200)}` : text;
}

/**
 * Bad input. The message says what was found, what is allowed, and what to do. It is one line, whatever it quotes. The command line exits
 * with 2.
 */
export class InputError extends Error {
  override name = 'InputError';
  constructor(message: string, options?: ErrorOptions) {
    super(oneLine(message), options);
  }
}

/** Error for an invalid config. Its message is the source of the config (e.g. a file name), followed by the sentence about the setting. */
export class ConfigError extends InputError {
  /** Key of the setting that the sentence is about, e.g. `actor.clipRatioHigh`; '' = the complete config. */
  readonly path: string;
  /** Keys of all settings that the sentence is about, `path` first. */
  readonly keys: readonly string[];
  /** The message without its source. */
  readonly sentence: string;
  constructor(source: string, keys: readonly string[], sentence: string) {
    super(`${source}: ${sentence}`);
    this.path = keys[0] ?? '';
    this.keys = keys;
    this.sentence = oneLine(sentence);
  }
}

/** User code (reward, agent loop, loss, advantage, ...) threw, took too long or returned an invalid value. `cause` is the thrown value. */
export class UserCodeError extends InputError {
  override name = 'UserCodeError';
  /** Name of the code and what went wrong, e.g. "reward threw"; the same for all faults of one kind. */
  readonly kind: string;
  constructor(kind: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}

/**
 * Losses, gradients, log-probs, advantages or weights were not finite in several steps in a row. The message names these values and what
 * happened before.
 */
export class NotFiniteError extends Error {
  override name = 'NotFiniteError';
  /** The last step that was attempted. */
  readonly step: number;
  constructor(step: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.step = step;
  }
}

/**
 * Returns a text for any thrown value. Never throws, although `message` can be a getter that throws, and some objects cannot be converted
 * to text.
 */
export function describe(error: unknown): string {
  try {
    if (!(error instanceof Error)) return typeof error === 'object' && error !== null ? textOf(error) : String(error);
    const message = String(error.message);
    return message === '' ? String(error.name) : message;
  } catch {
    return `an error without a readable message (${typeof error})`;
  }
}

/** Returns a thrown value as text. An object whose text would be "[object Object]" becomes JSON. */
function textOf(thrown: unknown): string {
  const text = String(thrown);
  return text.startsWith('[object ') ? JSON.stringify(thrown).slice(0, 200) : text;
}

/** True in a page and in its workers, where the browser decides which servers can be read. */
export const isInPage = (): boolean => 'document' in globalThis || 'WorkerGlobalScope' in globalThis;

/**
 * Returns why `fetch` of a URL failed, as the rest of a sentence about the URL. A browser reports one error for every reason, so a page
 * requests the URL again without reading the answer: a server that answers then does not allow other sites to read it.
 */
export async function whyUnreachable(url: string, error: unknown): Promise<string> {
  const { cause = error } = error as { cause?: unknown };
  if (!isInPage()) return `cannot be reached (${(cause as { code?: string }).code ?? describe(cause)})`;
  if (!navigator.onLine) return 'cannot be reached, because this browser is offline';
  const request = { mode: 'no-cors', credentials: 'omit', signal: AbortSignal.timeout(10_000) } as const;
  let isForbidden = false;
  const forbid = () => (isForbidden = true);
  addEventListener('securitypolicyviolation', forbid);
  const answers = await fetch(url, request).then(
    () => true,
    () => new Promise<false>((resolve) => setTimeout(() => resolve(false))), // a violation is reported in a later task
  );
  removeEventListener('securitypolicyviolation', forbid);
  if (isForbidden)
    return `is not allowed by the Content-Security-Policy of this page. The host of the page must add ${new URL(url, location.href).origin} to connect-src`;
  return answers ? 'does not allow other sites to read it (CORS)' : 'does not answer';
}

/** Maximum number of characters of a value in an error message. */
const LONGEST_VALUE = 100;

/** Returns a value as text for an error message: the start of its JSON, or its type if it has no JSON. Never throws. */
export function shownValue(value: unknown): string {
  if (typeof value === 'number' || value === undefined) return String(value);
  try {
    const text = JSON.stringify(value) ?? `a ${typeof value}`;
    return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE)}...` : text;
  } catch {
    return typeof value === 'object' ? 'an object that JSON cannot hold' : `a ${typeof value}`;
  }
}

/** Returns the stack of an error; undefined if it has no stack. Never throws. */
export function stackOf(error: unknown): string | undefined {
  try {
    const { stack } = error as Error;
    return typeof stack === 'string' ? stack : undefined;
  } catch {
    return undefined;
  }
}

/** Returns where an error was thrown, as " (at reward (file.ts:3:7))"; '' if that is unknown. */
function placeOf(error: unknown): string {
  const place = /^ {4}at .*$/m.exec(stackOf(error) ?? '')?.[0].trim();
  return place === undefined ? '' : ` (${place})`;
}

/** Like `instanceof`, but for any thrown value. Never throws, although a proxy can throw in `instanceof`. */
export function isA<T>(error: unknown, kind: new (...args: never[]) => T): error is T {
  try {
    return error instanceof kind;
  } catch {
    return false;
  }
}

/**
 * True if the run can continue with a new engine on a new device. Errors from a worker do not have their class, only its name or a text.
 */
export function isEngineLost(error: unknown): boolean {
  const { name, message } = error instanceof Error ? error : new Error(String(error));
  const isLost = ['DeviceLostError', 'WorkerDiedError', 'NoAdapterError'].includes(name);
  return isLost || /device (was |is )?lost/i.test(message);
}

/**
 * Converts an error of user code into one that names the code. Device failures are returned unchanged.
 * @param kind kind of the code in one word, e.g. 'reward'
 * @param what the code and where it ran, e.g. 'The reward of problem "train-3"'
 * @param expected what the code must do, as the end of a sentence
 */
export function blame(kind: string, what: string, error: unknown, expected: string): Error {
  for (const known of [UserCodeError, DeviceLostError, OutOfMemoryError, GpuError]) if (isA(error, known)) return error;
  const message = isA(error, InputError)
    ? error.message
    : `${what} threw "${describe(error).slice(0, 1000)}"${placeOf(error)}. ${expected}.`;
  return new UserCodeError(`${kind} threw`, message, { cause: error });
}
