/** Plain data on its way into a sandbox and out of it: JSON, with NaN and the infinities, bounded in size and depth. */

/** Characters that one value may have as JSON, either way. */
export const MAX_CHARACTERS = 4_000_000;
const MAX_DEPTH = 64;

/** How a number that JSON has not is written: an object with this one key. */
const NUMBER = '$number';

/** JSON of a value. Throws RangeError for a longer one than MAX_CHARACTERS, TypeError for what JSON has not (a circle, a bigint). */
export function encodePlain(value: unknown): string {
  const text = JSON.stringify(value ?? null, (_, v: unknown) =>
    typeof v === 'number' && !Number.isFinite(v) ? { [NUMBER]: String(v) } : v,
  ) as string | undefined;
  if (text === undefined) throw new TypeError('it is no data, but a function or a symbol');
  if (text.length > MAX_CHARACTERS) throw tooLong(text.length);
  return text;
}

export const tooLong = (length: number): RangeError =>
  new RangeError(`it has ${length} characters as JSON; at most ${MAX_CHARACTERS} may cross`);

/** The value that such a text stands for: new objects without getters, functions or keys named __proto__. Throws RangeError. */
export function decodePlain(text: string): unknown {
  if (text.length > MAX_CHARACTERS) throw tooLong(text.length);
  if (jsonDepth(text) > MAX_DEPTH) throw new RangeError(`it is nested deeper than ${MAX_DEPTH} levels`);
  return JSON.parse(text, (key, value: unknown) => {
    if (key === '__proto__') throw new RangeError('it has a key "__proto__", which may not cross');
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, NUMBER)) return value;
    const written = (value as Record<string, unknown>)[NUMBER];
    return Object.keys(value).length === 1 && typeof written === 'string' ? Number(written) : value;
  });
}

/** How deep brackets are nested, those in texts aside: counted before anything recursive reads them. */
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
