/** Rules of `scripts/prose.mjs`, and functions that apply them to lines of text. */

import { createHash } from 'node:crypto';
import { posix } from 'node:path';

/**
 * @typedef {{ file: string, number: number, text: string }} Line
 * @typedef {'comments' | 'docs' | 'strings'} Kind
 * @typedef {{ name: string, of: Kind[], pattern: RegExp }} Rule
 */

/** Files whose comments and sentences are counted, in the notation of `git ls-files`. Printed pages and the log are not counted. */
export const COUNTED = {
  comments: ['src', 'demo', 'kernels', 'scripts', 'bench', 'campaign', 'test', 'examples', ':!scripts/prose.mjs'],
  docs: [
    '*.md',
    ...['reference/cli', 'reference/config', 'reference/from-trl-verl', 'lab/log'].map((page) => `:!docs/${page}.md`),
  ],
  strings: ['src', 'demo', ':!*.css', ':!*.bin', ':!*.png', ':!*.md'],
};

/** @type {Rule[]} */
export const RULES = [
  {
    name: 'comment that begins with What, Of, Who, Whether or As',
    of: ['comments'],
    pattern: /^ *(\/\*\*|\*|\/\/) (What|Of|Who|Whether|As) /,
  },
  {
    name: 'comment that begins with a pronoun',
    of: ['comments'],
    pattern: /^ *(\/\*\*|\*|\/\/) (It|Its|They|Their|Those|That|These) /,
  },
  {
    name: 'nobody, somebody, whoever',
    of: ['comments', 'docs'],
    pattern: /\b(no|some|any)body\b|\bwhoever\b/i,
  },
  {
    name: 'goes on, under way, anew, stands still, gives up',
    of: ['comments', 'docs'],
    pattern: /\b(go(es)?|went|gone|going) on\b|\bunder way\b|\banew\b|\bstands? still\b|\bgiv(es?|en|ing) up\b/i,
  },
  { name: 'is no X, is none', of: ['comments', 'docs'], pattern: /\b(is|are|was) (no [a-z]|none\b)/i },
  { name: 'throws X where', of: ['comments'], pattern: /throws [a-z]+ where/i },
  {
    name: 'is no X, is none in a string',
    of: ['strings'],
    pattern: /(?<!\bthere )\b(is|are|was|were) (no (?!longer\b)[a-z]|none\b)/i,
  },
  { name: 'nobody, somebody, whoever in a string', of: ['strings'], pattern: /\b(no|some|any)body\b|\bwhoever\b/i },
  {
    name: 'goes on, under way, anew, stands still, gives up in a string',
    of: ['strings'],
    pattern: /\b(go(es)?|went|gone|going) on\b|\bunder way\b|\banew\b|\bstands? still\b|\bgiv(es?|en|ing) up\b/i,
  },
  {
    name: 'two sentences joined by a semicolon in a string',
    of: ['strings'],
    pattern:
      /; (add|answer|ask|call|check|choose|correct|did you mean|delete|give|install|leave|lower|make|name|pass|put|raise|register|remove|rename|return|save|send|set|start|take|train|try|use|wait|write)\b(?! =|@)/i,
  },
];

/**
 * @param {Rule} rule
 * @param {Record<Kind, Line[]>} texts
 * @returns {Line[]}
 */
export const matching = ({ of, pattern }, texts) =>
  of.flatMap((kind) => texts[kind].filter(({ text }) => pattern.test(text)));

const REGEX = /\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+\//y;
const QUOTED = /'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"/y;
const COMMENT = /\/\/[^\n]*|\/\*[^]*?\*\/|<!--[^]*?-->/y;
const BETWEEN_TAGS = /(?<=>)[^<>{}=;()`]*[a-z]{2}[^<>{}=;()`]*(?=[<{])/y;
/** A template that contains a program or a kernel is not prose. */
const PROGRAM = /=> \{|\b(fn|function) \w+\(|\bconst [\w{]+[^.]* = /;

/**
 * Strings, templates and texts between tags of a source file, in which users read errors, logs and labels. Literals that `+` joins are one
 * text.
 * @param {string} source
 * @param {string} file
 * @returns {Line[]} one per text: the line that it starts in, and its text on one line
 */
export function stringsOf(source, file) {
  /** @type {Line[]} */
  const found = [];
  const hasTags = /\.(tsx|html)$/.test(file);
  let [at, end] = [0, -1];
  const take = (/** @type {RegExp} */ pattern) => {
    pattern.lastIndex = at;
    const [token] = pattern.exec(source) ?? [];
    if (token !== undefined) at += token.length;
    return token;
  };
  const add = (/** @type {number} */ start, /** @type {string} */ raw) => {
    const text = raw.replaceAll(/\s+/g, ' ');
    const before = found.at(-1);
    if (before && end >= 0 && /^\s*\+\s*$/.test(source.slice(end, start))) before.text += text;
    else if (!PROGRAM.test(raw)) found.push({ file, number: source.slice(0, start).split('\n').length, text });
    end = at;
  };
  /** Reads the rest of a template after its first backtick. Strings in its `${}` count as separate texts. */
  const template = () => {
    const start = at;
    for (; at < source.length && source[at] !== '`'; at++) {
      if (source[at] === '\\') at++;
      else if (source.startsWith('${', at)) {
        at += 2;
        code('}');
        at--;
      }
    }
    at++;
    add(start - 1, source.slice(start, at - 1));
  };
  /** Reads code up to the bracket that closes it. */
  const code = (/** @type {string} */ closing) => {
    let depth = 0;
    while (at < source.length) {
      const [start, letter] = [at, source[at]];
      if (take(COMMENT) !== undefined) continue;
      const quoted = take(QUOTED);
      const text = quoted?.slice(1, -1) ?? (hasTags ? take(BETWEEN_TAGS) : undefined);
      if (text !== undefined) {
        add(start, text);
        continue;
      }
      if (letter === '/' && /[=(,:!&|?[]\s*$/.test(source.slice(Math.max(0, at - 20), at)) && take(REGEX)) continue;
      at++;
      if (letter === '`') template();
      else if (letter === '{') depth++;
      else if (letter === '}' && depth-- === 0 && closing === '}') return;
    }
  };
  code('');
  return found;
}

const MAX_WORDS = 40;

/**
 * Returns sentences of paragraphs and lists with more than 40 words. Skips code, tables and headings.
 * @param {Line[]} docs lines of complete files, in order
 * @returns {Line[]} one line per sentence: the place at which its paragraph starts, and the sentence
 */
export function longSentences(docs) {
  /** @type {Line[]} */
  const found = [];
  /** @type {Line | undefined} */
  let paragraph;
  let isCode = false;
  const end = () => {
    if (!paragraph) return;
    const { file, number, text } = paragraph;
    const sentences = text.split(/(?<=[.!?:][)"*`]*)\s+(?=[A-Z`"[(*])/);
    for (const sentence of sentences)
      if (sentence.split(/\s+/).filter((word) => /\w/.test(word)).length > MAX_WORDS)
        found.push({ file, number, text: sentence });
    paragraph = undefined;
  };
  for (const { file, number, text } of docs) {
    if (paragraph && paragraph.file !== file) end();
    if (number === 1) isCode = false;
    if (isFence(text)) isCode = !isCode;
    if (isFence(text) || isCode || /^\s*$|^\s*[|#<]|^ {4}(?![-*\d])/.test(text)) {
      end();
      continue;
    }
    if (/^\s*([-*]|\d+\.) /.test(text)) end();
    if (paragraph) paragraph = { ...paragraph, text: `${paragraph.text} ${text.trim()}` };
    else paragraph = { file, number, text: text.trim() };
  }
  end();
  return found;
}

/** True for pages of docs/, except decisions, which start with their date. */
const isPage = (/** @type {string} */ file) => file.startsWith('docs/') && !file.startsWith('docs/decisions/');

/**
 * Returns pages of docs/ without two opening sentences after their title: "For ...", and what "you" can do afterwards.
 * @param {Line[]} docs lines of whole files, in order
 * @returns {Line[]} the titles of these pages
 */
export function pagesWithoutOpening(docs) {
  return docs.filter((title, i) => {
    if (title.number !== 1 || !isPage(title.file)) return false;
    const rest = docs.slice(i + 2);
    const end = rest.findIndex(({ file, text }) => file !== title.file || text.trim() === '');
    const opening = rest.slice(0, end < 0 ? undefined : end).map(({ text }) => text);
    const isBlank = docs[i + 1]?.text.trim() === '';
    return (
      !title.text.startsWith('# ') || !isBlank || !/^For [^]*?\.\)?\s[^]*\b[Yy]ou\b[^]*\.$/.test(opening.join('\n'))
    );
  });
}

/**
 * Returns words in backticks, or after "commit" or "at", that look like a short commit id: seven to twelve hexadecimal digits, including
 * letters.
 * @param {Line[]} docs
 * @returns {(Line & { id: string })[]}
 */
export const commitIds = (docs) =>
  docs.flatMap((line) =>
    Array.from(line.text.matchAll(/(?:`|\bcommit |\bat )([0-9a-f]{7,12})\b/g), ([, id]) => id)
      .filter((id) => /\d/.test(id) && /[a-f]/.test(id))
      .map((id) => ({ ...line, id })),
  );

const PATH = /`((?:src|demo|kernels|test|scripts|bench|campaign|configs|examples|docs)\/[\w./-]+\.\w+)`/g;

/**
 * Returns paths of this repository in backticks, with a folder and an extension, that do not exist.
 * @param {Line[]} docs
 * @param {(path: string) => boolean} exists
 * @returns {Line[]}
 */
export const brokenPaths = (docs, exists) =>
  docs.filter(({ text }) => Array.from(text.matchAll(PATH), ([, path]) => path).some((path) => !exists(path)));

const isFence = (/** @type {string} */ text) => /^\s*(```|~~~)/.test(text);

/** @param {Line[]} docs @returns {Line[]} lines outside of blocks of code */
function outsideCode(docs) {
  let isCode = false;
  return docs.filter(({ number, text }) => {
    if (number === 1) isCode = false;
    if (isFence(text)) isCode = !isCode;
    return !isCode && !isFence(text);
  });
}

/** @param {Line[]} docs @returns {Map<string, Set<string>>} anchors of the headings in each file, as GitHub generates them */
function anchorsOf(docs) {
  /** @type {Map<string, Set<string>>} */
  const anchors = new Map();
  for (const { file, text } of outsideCode(docs)) {
    const ofFile = anchors.get(file) ?? new Set();
    anchors.set(file, ofFile);
    const heading = /^#+ (.*)/.exec(text)?.[1];
    if (heading === undefined) continue;
    const shown = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1');
    const slug = shown
      .trim()
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replace(/\s/g, '-');
    let unique = slug;
    for (let n = 1; ofFile.has(unique); n++) unique = `${slug}-${n}`;
    ofFile.add(unique);
  }
  return anchors;
}

/**
 * Returns links to a file or folder that does not exist, or to a heading that its page does not have.
 * @param {Line[]} docs lines of whole files, in order
 * @param {(path: string) => boolean} exists
 * @returns {Line[]}
 */
export function brokenLinks(docs, exists) {
  const anchors = anchorsOf(docs);
  const isBroken = (/** @type {string} */ file, /** @type {string} */ target) => {
    const [path, anchor] = target.split('#');
    const page = path === '' ? file : posix.join(posix.dirname(file), path);
    if (!exists(page)) return true;
    return anchor !== undefined && page.endsWith('.md') && !anchors.get(page)?.has(anchor);
  };
  return outsideCode(docs).filter(({ file, text }) =>
    Array.from(text.replace(/`[^`]*`/g, '').matchAll(/\]\(([^)\s]+)\)/g), ([, target]) => target)
      .filter((target) => !/^[a-z]+:/.test(target))
      .some((target) => isBroken(file, target)),
  );
}

/**
 * True if `npm pack` puts a file or folder of the repository in the package.
 * @param {string} path
 * @param {string[]} files package.json's list, in which only left-out files (`!`) are patterns
 */
export function isPacked(path, files) {
  if (/^(README\.md|LICENSE|package\.json)?$/.test(path)) return true;
  const isIn = (/** @type {string} */ name) => path === name || path.startsWith(`${name}/`) || path === `${name}/`;
  const isOut = (/** @type {string} */ pattern) => {
    const source = pattern
      .slice(1)
      .replace(/[.+?^${}()|[\]\\]/g, '\\$&')
      .replace(/\*+/g, (stars) => (stars === '*' ? '[^/]*' : '.*'));
    return new RegExp(`^${source}$`).test(path);
  };
  return files.some((name) => isIn(name)) && !files.some((name) => name.startsWith('!') && isOut(name));
}

/**
 * Joins neighbouring lines that belong together, such as a comment or a paragraph.
 * @param {Line[]} lines
 * @returns {Line[]} one per block: its first line, with the text of all
 */
export function blocksOf(lines) {
  /** @type {Line[]} */
  const blocks = [];
  let next = '';
  for (const { file, number, text } of lines) {
    const words = text.replace(/^ *(\/\*\*?|\*\/?(?!\*)|\/\/) ?|\*\/.*$/g, '').trim();
    const startsNew = `${file}:${number}` !== next || words === '' || /^ *\/\*/.test(text);
    if (startsNew) blocks.push({ file, number, text: words });
    else if (blocks.at(-1)?.text) blocks[blocks.length - 1].text += ` ${words}`;
    next = `${file}:${number + 1}`;
  }
  return blocks.filter(({ text }) => text.split(' ').length > 4);
}

/**
 * Returns the lines of paragraphs: no headings, tables, code, or lists with their continuation lines.
 * @param {Line[]} docs lines of whole files, in order
 * @returns {Line[]}
 */
export function proseLines(docs) {
  /** True in a paragraph, false in another block, undefined between blocks. @type {boolean | undefined} */
  let isProse;
  return outsideCode(docs).filter(({ number, text }) => {
    if (number === 1 || text.trim() === '') isProse = undefined;
    if (/^\s*([|#<>]|!\[|[-*] |\d+\. )/.test(text)) isProse = false;
    else if (text.trim() !== '') isProse ??= !/^\s/.test(text);
    return isProse === true;
  });
}

/**
 * Returns `count` of the lines, chosen at random by the seed.
 * @param {Line[]} lines
 * @param {number} count
 * @param {number} seed
 */
export function drawn(lines, count, seed) {
  const key = (/** @type {Line} */ { file, number }) =>
    createHash('sha256').update(`${seed} ${file}:${number}`).digest('hex');
  return lines
    .map((line) => ({ line, order: key(line) }))
    .sort((a, b) => (a.order < b.order ? -1 : 1))
    .slice(0, count)
    .map(({ line }) => line);
}
