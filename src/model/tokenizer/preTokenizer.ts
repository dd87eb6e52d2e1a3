/**
 * Adapts the pre-tokenizer of a tokenizer.json to the tokenizers library in JavaScript. For numbers, words and punctuation beyond ASCII,
 * some of its steps differ from those of the library in Rust, with which models are trained. Such steps are replaced by splits with regular
 * expressions.
 */

import { InputError } from '../../errors.ts';

type Json = Record<string, unknown>;

/** White space as in Rust's char::is_whitespace; JavaScript's \s has U+FEFF and lacks U+0085. */
const SPACE = '\\p{White_Space}';
const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d';
const PUNCTUATION = '[\\p{P}\\u0021-\\u002F\\u003A-\\u0040\\u005B-\\u0060\\u007B-\\u007E]';
/** GPT-2's regular expression, which the step ByteLevel uses. */
const BYTE_LEVEL = ` ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|${SPACE}+(?!\\P{White_Space})|${SPACE}+`;

/**
 * Returns the steps of a pre-tokenizer, with those that the two libraries apply differently replaced by steps that both
 * apply alike. Throws InputError for a split that cannot be replaced.
 */
export function preTokenizerOf(step: unknown): unknown {
  if (typeof step !== 'object' || step === null) return step;
  const { type, ...own } = step as Json;
  const steps = own['pretokenizers'];
  if (Array.isArray(steps)) return { ...step, pretokenizers: steps.map(preTokenizerOf) };
  switch (type) {
    case 'Digits':
      return split(own['individual_digits'] === true ? '\\p{N}' : '\\p{N}+');
    case 'Punctuation':
      return splitBy(PUNCTUATION, own['behavior'] ?? 'Isolated');
    case 'Whitespace':
      return { ...split(`[${WORD}]+|[^${WORD}${SPACE}]+`), behavior: 'Removed', invert: true };
    case 'WhitespaceSplit':
      return { ...split(`${SPACE}+`), behavior: 'Removed' };
    case 'FixedLength':
      return split(`[\\s\\S]{1,${Number(own['length'] ?? 5)}}`);
    case 'ByteLevel':
      if (own['use_regex'] === false || own['add_prefix_space'] === true) return step;
      return sequence(split(`'(?:[stmd]|re|ve|ll)|${BYTE_LEVEL}`), { ...step, use_regex: false });
    case 'Metaspace':
      return metaspace(own);
    case 'Split':
      return knownSplit(own);
    default:
      return step;
  }
}

/** Returns the steps of a pre-tokenizer for a text that continues another one: a Metaspace step with `prepend_scheme` "first" prepends nothing. */
export function afterStart(step: unknown): unknown {
  if (typeof step !== 'object' || step === null) return step;
  const { pretokenizers: steps, prepend_scheme: scheme } = step as Json;
  if (Array.isArray(steps)) return { ...step, pretokenizers: steps.map(afterStart) };
  return scheme === 'first' ? { ...step, prepend_scheme: 'never' } : step;
}

const sequence = (...pretokenizers: object[]) => ({ type: 'Sequence', pretokenizers });

const split = (Regex: string) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false });

/** Returns a step that splits at a character class or a text. `behavior` says what happens to the separators. */
function splitBy(one: string, behavior: unknown): object {
  const other = `(?:(?!${one})[\\s\\S])`;
  switch (behavior) {
    case 'Isolated':
      return split(one);
    case 'Contiguous':
      return split(`(?:${one})+`);
    case 'MergedWithPrevious':
      return split(`${other}*${one}|${other}+`);
    case 'MergedWithNext':
      return split(`${one}${other}*|${other}+`);
    default:
      return { ...split(one), behavior: 'Removed' };
  }
}

/**
 * The step Metaspace also splits at the start of each word, unless `split` is false. Old files have `add_prefix_space`
 * instead of `prepend_scheme`.
 */
function metaspace(own: Json): object {
  const scheme = own['prepend_scheme'] ?? (own['add_prefix_space'] === false ? 'never' : 'always');
  const step = { ...own, type: 'Metaspace', prepend_scheme: scheme };
  if (own['split'] === false) return step;
  const { replacement = '\u2581' } = own as { replacement?: string };
  return sequence(step, splitBy(escaped(replacement), 'MergedWithNext'));
}

/** Matches a pattern of one character, one escape or one class. */
const ONE = /^(?:[^\\[\](){}|*+?.^$]|\\[pP]\{[^{}]*\}|\\[^pP]|\[(?:[^\\[\]]|\\.)*\])$/su;

function knownSplit(own: Json): object {
  const { Regex: regex, String: text } = (own['pattern'] ?? {}) as { Regex?: unknown; String?: unknown };
  if (typeof regex !== 'string' && typeof text !== 'string') return { ...own, type: 'Split' };
  const pattern = typeof regex === 'string' ? withRustSpace(regex) : escaped(String(text));
  const [behavior, isInverted] = [own['behavior'] ?? 'Isolated', own['invert'] === true];
  if (behavior === 'Removed') return { ...split(pattern), behavior, invert: isInverted };
  if (behavior === 'Isolated') return split(pattern); // an inverted split results in the same pieces
  if (!isInverted && (typeof regex !== 'string' || ONE.test(pattern))) return splitBy(pattern, behavior);
  throw new InputError(
    `tokenizer.json: "pre_tokenizer" splits by ${JSON.stringify(regex ?? text).slice(0, 80)} with behavior ${JSON.stringify(behavior)}` +
      `${isInverted ? ', inverted' : ''}; allowed: "Isolated" or "Removed" with a pattern of several characters. Use the file of another model.`,
  );
}

/** Replaces \s and \S by classes with Rust's white space. */
const withRustSpace = (pattern: string): string =>
  pattern.replace(/\\([\s\S])/gu, (whole, c: string) => (c === 's' ? SPACE : c === 'S' ? '\\P{White_Space}' : whole));

const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
