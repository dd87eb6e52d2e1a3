/** Reads the output of a tool: the text for the model, a reward, and whether the episode ends. */

import { describe, isA, shownValue, UserCodeError } from '../errors.ts';
import { isObject } from './toolSchema.ts';

/**
 * The result of a tool call. The model reads a string as it is, any other JSON value as JSON, and bytes as UTF-8, with U+FFFD for invalid
 * ones. If an object has only the key `text`, or `text` together with `reward` or `done`, the model reads only `text`. `reward` is summed
 * over the sample's calls, by tool; see ScoredSample.toolRewards. `done` ends the episode: the turn's other calls run to their end, the
 * reward function finds all outputs in the messages, and the model has no further turn (stop reason 'done').
 *
 * NaN and Infinity make the call fail, like an exception. A value that JSON cannot represent (undefined, a bigint, a Map, an instance of a
 * class without toJSON, a cycle) is a bug in the tool: it ends the run, or only the sample if trainer.onError is skip.
 */
// `object` allows interfaces. `then?: never` excludes the promise of an async function without a return.
export type ToolOutput = string | number | boolean | null | { [key: string]: unknown } | (object & { then?: never });

/** Kind of the UserCodeError if a tool returned a value that JSON cannot represent. The model does not read this error. */
export const TOOL_RETURNED = 'tool returned';

/** Thrown for NaN or Infinity in a tool's output. The model's arguments can cause these values, for example by a division by zero. */
class NotFiniteOutput extends Error {}

/** True if a tool reports by its text that the call failed. Another text about errors, such as "Errors: 0", is a result. */
export const isErrorText = (text: string): boolean => text.startsWith('Error:');

/** A tool's output as the agent loop uses it. */
export interface ReadOutput {
  text: string;
  reward?: number;
  done?: boolean;
}

/**
 * Reads the output of a tool. Throws UserCodeError of the kind TOOL_RETURNED if it is not a ToolOutput, and Error if it has NaN or
 * Infinity.
 */
export function readToolOutput(name: string, args: unknown, output: unknown): ReadOutput {
  try {
    if (output instanceof Uint8Array) return { text: new TextDecoder().decode(output) };
    if (!isControl(output)) return { text: jsonText(output) };
    const { text, reward, done } = output;
    if (reward !== undefined && !Number.isFinite(reward)) throw new TypeError(`the reward ${shownValue(reward)}`);
    if (done !== undefined && typeof done !== 'boolean') throw new TypeError(`${shownValue(done)} as "done"`);
    return { text: jsonText(text), ...(reward !== undefined && { reward: reward as number }), ...(done && { done }) };
  } catch (error) {
    if (isA(error, NotFiniteOutput))
      throw new Error(`${name} gave ${error.message}, not a finite number`, { cause: error });
    throw new UserCodeError(
      TOOL_RETURNED,
      `Tool "${name}" returned ${describe(error)} for the arguments ${shownValue(args)}. ` +
        'Return a text or any other JSON value, null for nothing; or { text, reward, done } with a finite reward and a boolean.',
      { cause: error },
    );
  }
}

/** True if the model reads only `text`, see ToolOutput. Also true for `reward` or `done` without `text`, which is an error. */
function isControl(output: unknown): output is Record<string, unknown> {
  if (!isObject(output)) return false;
  const keys = Object.keys(output);
  const known = keys.filter((key) => ['text', 'reward', 'done'].includes(key));
  if (known.length === 0 || (known.length < keys.length && known.join() === 'text')) return false;
  return known.includes('text') || known.length === keys.length;
}

/**
 * Returns a string unchanged, and any other value as JSON. Throws TypeError that names a value that JSON cannot represent, and another error
 * for NaN and Infinity.
 */
export function jsonText(output: unknown): string {
  if (typeof output === 'string') return output;
  return JSON.stringify(output, function (this: unknown, key: string, value: unknown) {
    if (typeof value === 'number' && !Number.isFinite(value)) throw new NotFiniteOutput(String(value));
    // JSON.stringify omits an undefined member of an object, which is harmless. In an array it would write null.
    const isLeftOut = value === undefined && key !== '' && !Array.isArray(this);
    const foreign = isLeftOut ? undefined : foreignName(value);
    if (foreign !== undefined) throw new TypeError(key === '' ? foreign : `${foreign} under "${key}"`);
    return value;
  });
}

/** Returns the name of a value that JSON cannot represent. Undefined if JSON can represent it. */
function foreignName(value: unknown): string | undefined {
  if (value === undefined) return 'undefined';
  if (['function', 'symbol', 'bigint'].includes(typeof value)) return `a ${typeof value}`;
  if (!isObject(value)) return undefined;
  const prototype: unknown = Object.getPrototypeOf(value);
  // An object of another realm (frame or worker) has another Object.prototype, whose own prototype is null.
  if (prototype === null || Object.getPrototypeOf(prototype) === null) return undefined;
  return `an instance of ${(value.constructor as { name?: string } | undefined)?.name ?? 'a class'}`;
}
