/**
 * Checks regular expressions of an untrusted tokenizer.json or a config. Matching cannot be interrupted, so a pattern
 * that could backtrack forever is refused before use. A pattern passes if its repeated parts match a text in one way
 * only, at most two parts in a row repeat without bound, and its other choices can be combined in few ways. The
 * patterns of known tokenizers pass.
 */

import { InputError } from '../../errors.ts';

/** One alternative of a pattern: items that follow one another, each with its number of repeats. */
type Path = Item[];

interface Item {
  /** Source text of the character or class; undefined for a group. */
  text?: string;
  group?: Path[];
  min: number;
  max: number;
}

const MAX_LENGTH = 20_000;
const MAX_DEPTH = 50;
/**
 * Maximum number of parts of an alternative that repeat without bound. The matching time grows with the text's length
 * to the power of this number plus one.
 */
const MAX_UNBOUNDED = 2;
/** Maximum number of combinations of alternatives and bounded repeats, each of which the matcher can try. */
const MAX_WAYS = 64;

/**
 * Throws InputError with the pattern if matching it could take forever.
 * @param place where the pattern is; the error starts with it
 * @param remedy what to do; the error ends with it
 */
export function checkPattern(
  pattern: string,
  place = 'tokenizer.json: the pattern',
  remedy = "Use another model's tokenizer",
): void {
  const refuse = (why: string): never => {
    const shown = pattern.length > 80 ? `${pattern.slice(0, 77)}...` : pattern;
    throw new InputError(`${place} ${JSON.stringify(shown)} ${why}. ${remedy}.`);
  };
  if (pattern.length > MAX_LENGTH) refuse(`has ${pattern.length} characters, of at most ${MAX_LENGTH}`);
  if (/\\[1-9gk]/.test(pattern.replaceAll('\\\\', ''))) refuse('refers back to what it matched, which may never end');
  const paths = new PatternParser(pattern).parse() ?? refuse(`is nested deeper than ${MAX_DEPTH}`);
  if (paths.some(repeatsAmbiguously)) refuse('repeats what can be read in several ways, which may never end');
  if (unboundedIn(paths) > MAX_UNBOUNDED)
    refuse(`repeats more than ${MAX_UNBOUNDED} parts in a row without bound, which may never end`);
  if (paths.some((path) => waysThrough(path) > MAX_WAYS))
    refuse(`can be read in more than ${MAX_WAYS} ways by its choices, which may never end`);
}

const repeatsAmbiguously = (path: Path): boolean =>
  path.some(({ group, max }) => group && ((max > 1 && !isUnambiguous(group)) || group.some(repeatsAmbiguously)));

/**
 * True if repeating these alternatives matches every text in one way only: they start with different literal
 * characters, and each has a fixed length, apart from optional characters as in `\r?\n`.
 */
function isUnambiguous(paths: Path[]): boolean {
  const firsts = paths.map(([item]) => literalOf(item));
  const apart = paths.length === 1 || (!firsts.includes(undefined) && new Set(firsts).size === paths.length);
  return apart && paths.every((path) => path.every((item, i) => isFixed(item) || isOption(item, path[i + 1])));
}

const isFixed = ({ group, min, max }: Item): boolean =>
  min === max && (!group || (group.length === 1 && group[0].every(isFixed)));

/** True for an optional character that differs from the required next one: `\r?\n`. */
function isOption(item: Item, next: Item | undefined): boolean {
  const [own, other] = [optional(item), next && literalOf(next)];
  return item.max === 1 && own !== undefined && other !== undefined && own !== other;
}

const optional = (item: Item): string | undefined => literalOf({ ...item, min: 1 });

/** Returns the only character that can be at this place; undefined if several can. */
function literalOf(item: Item | undefined): string | undefined {
  const { text, min = 0 } = item ?? {};
  return text !== undefined && min > 0 && /^([^.[^$\\]|\\[rnt\\.*+?()[\]{}|/^$-])$/su.test(text) ? text : undefined;
}

/** Returns the number of unbounded repeats in the alternative that has most of them. */
function unboundedIn(paths: Path[]): number {
  const ofItem = ({ group, max }: Item) => (max === Infinity ? 1 : 0) + (group ? unboundedIn(group) : 0);
  return Math.max(0, ...paths.map((path) => path.reduce((sum, item) => sum + ofItem(item), 0)));
}

/**
 * Returns the number of ways through an alternative by its choices and bounded repeats. Unbounded repeats are counted
 * separately.
 */
const waysThrough = (path: Path): number =>
  path.reduce((ways, { group, min, max }) => {
    const ofGroup = group?.reduce((sum, inner) => sum + waysThrough(inner), 0) ?? 1;
    return ways * (ofGroup + (max === Infinity ? 0 : max - Math.max(min, 1)) + (min === 0 ? 1 : 0));
  }, 1);

/** Parses only the structure of a pattern. The regular expression compiler refuses an invalid pattern later. */
class PatternParser {
  private at = 0;
  private readonly source: string;

  constructor(source: string) {
    this.source = source;
  }

  /** Returns undefined if the pattern is nested too deep. */
  parse(depth = 0): Path[] | undefined {
    if (depth > MAX_DEPTH) return undefined;
    const paths: Path[] = [[]];
    while (this.at < this.source.length) {
      const next = this.source[this.at];
      if (next === ')' && depth > 0) break;
      if (next === '|') {
        this.at++;
        paths.push([]);
        continue;
      }
      const atom = next === '(' ? this.group(depth) : { text: this.character() };
      if (!atom) return undefined;
      paths[paths.length - 1].push({ ...atom, ...this.times() });
    }
    return paths;
  }

  private group(depth: number): { group: Path[] } | undefined {
    this.at += /^\((\?(<?[=!]|<\w+>|[:>~]|[a-z-]*:)?)?/.exec(this.rest(100))![0].length;
    const group = this.parse(depth + 1);
    this.at++;
    return group && { group };
  }

  /** Parses one character, escape or class. */
  private character(): string {
    const from = this.at;
    if (this.source[from] === '\\') this.at += /^\\([pPxu]\{[^}]*\}|[\s\S]|$)/u.exec(this.rest(100))![0].length;
    else if (this.source[from] === '[') this.skipClass();
    else this.at += String.fromCodePoint(this.source.codePointAt(from)!).length;
    return this.source.slice(from, this.at);
  }

  /** Skips a character class. Classes can be nested; a "]" right after the start is a character. */
  private skipClass(): void {
    let open = 0;
    do {
      const next = this.source[this.at++];
      if (next === '\\') this.at++;
      else if (next === ']') open--;
      else if (next === '[') {
        open++;
        this.at += /^\^?\]?/.exec(this.rest(2))![0].length;
      }
    } while (open > 0 && this.at < this.source.length);
  }

  /** Parses the quantifiers of the previous item; the numbers of several quantifiers in a row are multiplied. */
  private times(): { min: number; max: number } {
    let [min, max] = [1, 1];
    for (let first = true; ; first = false) {
      const found = /^(?:([*+?])|\{(\d*)(,?)(\d*)\})/.exec(this.rest(30));
      if (!found || (found[1] === undefined && found[2] + found[4] === '')) return { min, max };
      this.at += found[0].length;
      const [, sign, least, comma, most] = found;
      // A "?" or "+" after another quantifier makes it lazy or possessive. JavaScript instead reads the possessive "+"
      // as a second, nested repeat.
      if (!first && sign === '?') continue;
      if (sign === undefined) {
        min *= Number(least);
        max *= comma === '' ? Number(least) : most === '' ? Infinity : Number(most);
      } else {
        if (sign !== '+') min = 0;
        if (sign !== '?') max = Infinity;
      }
    }
  }

  private rest(length: number): string {
    return this.source.slice(this.at, this.at + length);
  }
}
