/**
 * Parses YAML text to plain values. Refuses text that no config needs before the YAML parser sees it: deep nesting
 * would abort the process, and long text would make the parser slow.
 */

import { isNode, LineCounter, parseDocument } from 'yaml';
import { InputError } from '../../errors.ts';

/**
 * Maximum length of a config in characters; a resolved config has about 6,000. The parser's time to find an error grows
 * with the square of the length.
 */
const LONGEST = 2 ** 16;
const DEEPEST = 32;
/** Maximum number of open brackets; brackets inside quoted texts count too. */
const MOST_OPEN = 64;

/**
 * Parses YAML text. Returns null if the text is empty. Throws InputError. @param what name of the YAML text in errors
 */
export function readYaml(text: string, what: string): unknown {
  if (text.length > LONGEST)
    throw new InputError(`${what} has ${text.length} characters; allowed: at most ${LONGEST}. Shorten it.`);
  const control = /[^\t\n\r\x20-\uffff]/.exec(text);
  if (control) {
    const line = text.slice(0, control.index).split('\n').length;
    throw new InputError(
      `${what} is not YAML: the control character ${control[0].charCodeAt(0)} in line ${line}. Remove it.`,
    );
  }
  const tooDeep = () =>
    new InputError(
      `${what} is nested more than ${DEEPEST} deep, or holds an alias inside what it names. Use fewer levels.`,
    );
  if (opensMoreThan(text, MOST_OPEN)) throw tooDeep();
  const value = valueOf(text, what);
  if (isDeeper(value, DEEPEST)) throw tooDeep();
  return value;
}

/** Keys must be texts. Tags such as `!!binary` are refused, because no config value has such a type. */
function valueOf(text: string, what: string): unknown {
  const lineCounter = new LineCounter();
  const options = { lineCounter, prettyErrors: false, stringKeys: true, resolveKnownTags: false };
  const document = parseDocument(text, options);
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem?.code === 'MULTIPLE_DOCS')
    throw new InputError(
      `${what} holds several documents, but a config is one document. Remove the "---" between them.`,
    );
  if (problem) {
    const { line, col } = lineCounter.linePos(problem.pos[0]);
    throw new InputError(
      `${what} is not YAML: ${shortened(problem.message)} at line ${line}, column ${col}. Correct it there.`,
    );
  }
  try {
    return document.toJS() as unknown;
  } catch (error) {
    // The parser throws for an unknown alias, and for aliases that contain each other many times.
    if (error instanceof ReferenceError)
      throw new InputError(`${what} is not YAML: ${shortened(error.message)}. Correct the alias.`);
    throw error;
  }
}

/**
 * Line of a value in a text that `readYaml` has read, or line of the nearest part around the value. Undefined
 * otherwise.
 */
export function lineOf(text: string, path: readonly (string | number)[]): number | undefined {
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter, stringKeys: true });
  for (let at = path; ; at = at.slice(0, -1)) {
    const node = at.length === 0 ? document.contents : document.getIn(at, true);
    if (isNode(node) && node.range) return lineCounter.linePos(node.range[0]).line;
    if (at.length === 0) return undefined;
  }
}

/** The parser's error messages quote the text that they found, which can be the full config. */
const shortened = (message: string): string => {
  const [line] = message.split('\n');
  return line.length > 160 ? `${line.slice(0, 157)}...` : line;
};

/** True if more than `most` brackets are open at some place, or one line starts with more than `most` "- " or "? ". */
function opensMoreThan(text: string, most: number): boolean {
  let open = 0;
  for (const character of text) {
    if (character === '[' || character === '{') open++;
    else if (character === ']' || character === '}') open = Math.max(0, open - 1);
    if (open > most) return true;
  }
  return text.split('\n').some((line) => (/^(?:[-?:]?\s+)+/.exec(line)?.[0] ?? '').split(/[-?:]/).length > most);
}

/** True if a value is nested deeper than `levels`. An alias to a value that contains it is infinitely deep. */
const isDeeper = (value: unknown, levels: number): boolean =>
  typeof value === 'object' &&
  value !== null &&
  (levels === 0 || Object.values(value).some((inner) => isDeeper(inner, levels - 1)));
