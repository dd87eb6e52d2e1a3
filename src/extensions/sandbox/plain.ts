/**
 * Converts plain data that enters or leaves a sandbox to JSON and back. NaN and the infinities are allowed, and size and depth are limited.
 */

/** Maximum number of characters of one value as JSON, whether it enters or leaves the sandbox. */
export const MAX_CHARACTERS = 4_000_000;
const MAX_DEPTH = 64;

/** Key of the object that represents a number that JSON does not have (NaN or an infinity). */
const NUMBER = '$number';

/** Returns a value as JSON. Throws RangeError if it is longer than MAX_CHARACTERS, TypeError for a cycle or a bigint. */
export function encodePlain(value: unknown): string {
  const text = JSON.stringify(value ?? null, (_, v: unknown) =>
    typeof v === 'number' && !Number.isFinite(v) ? { [NUMBER]: String(v) } : v,
  ) as string | undefined;
  if (text === undefined) throw new TypeError('it is a function or a symbol, not data');
  if (text.length > MAX_CHARACTERS) throw tooLong(text.length);
  return text;
}

/** Returns the error for a value that is too long as JSON. */
export const tooLong = (length: number): RangeError =>
  new RangeError(`it has ${length} characters as JSON; at most ${MAX_CHARACTERS} may cross`);

/** Parses a text from `encodePlain` into new objects without getters, functions or keys named __proto__. Throws RangeError. */
export function decodePlain(text: string): unknown {
  if (text.length > MAX_CHARACTERS) throw tooLong(text.length);
  if (jsonDepth(text) > MAX_DEPTH) throw new RangeError(`it is nested deeper than ${MAX_DEPTH} levels`);
  return JSON.parse(text, (key, value: unknown) => {
    if (key === '__proto__') throw new RangeError('it has a key "__proto__", which is not allowed');
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, NUMBER)) return value;
    const written = (value as Record<string, unknown>)[NUMBER];
    return Object.keys(value).length === 1 && typeof written === 'string' ? Number(written) : value;
  });
}

/** Returns the maximum depth of nested brackets outside strings. Called before any recursive code reads the text. */
export function jsonDepth(text: string): number {
  let [depth, deepest, inString] = [0, 0, false];
  for (let i = 0; i < text.length; i++) {
    const character = text[i];
    if (inString) {
      if (character === '\\') i++;
      else if (character === '"') inString = false;
    } else if (character === '"') inString = true;
    else if (character === '{' || character === '[') deepest = Math.max(deepest, ++depth);
    else if (character === '}' || character === ']') depth--;
  }
  return deepest;
}
