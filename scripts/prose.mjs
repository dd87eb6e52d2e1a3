/**
 * `node scripts/prose.mjs` counts what plain English avoids, in comments, documents and strings: words and openings that confuse a reader,
 * sentences of more than 40 words, commit ids, paths and links that do not exist. A count above its ceiling in scripts/prose.json fails.
 *   --list RULE   prints every line that a rule counts
 *   --draw SEED   prints 30 comments, 10 errors and 10 paragraphs, to be read by someone who does not know the code
 *   --store       lowers the ceilings to today's counts; a ceiling is never raised
 */

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  blocksOf,
  brokenLinks,
  isPacked,
  brokenPaths,
  commitIds,
  COUNTED,
  drawn,
  longSentences,
  matching,
  pagesWithoutOpening,
  proseLines,
  RULES,
  stringsOf,
} from './lib/prose.mjs';
import { ROOT } from './setup.mjs';

const CEILINGS = join(ROOT, 'scripts', 'prose.json');
const git = (/** @type {string[]} */ ...args) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' });

/** @param {string[]} patterns of paths, in the notation of `git ls-files` */
const sources = (...patterns) =>
  git('ls-files', '-z', '--', ...patterns)
    .split('\0')
    .filter((file) => file !== '' && existsSync(join(ROOT, file)))
    .map((file) => ({ file, source: readFileSync(join(ROOT, file), 'utf8') }));

const lines = (/** @type {string[]} */ ...patterns) =>
  sources(...patterns).flatMap(({ file, source }) =>
    source.split('\n').map((text, i) => ({ file, number: i + 1, text })),
  );

const isCommit = (/** @type {string} */ id) => {
  try {
    git('cat-file', '-e', `${id}^{commit}`);
    return true;
  } catch {
    return false;
  }
};

const comments = lines(...COUNTED.comments).filter(({ text }) => /^ *(\/\*\*?|\*|\/\/) /.test(text));
const docs = lines(...COUNTED.docs);
const strings = sources(...COUNTED.strings).flatMap(({ file, source }) => stringsOf(source, file));
/** Files that CONTRIBUTING's recipes create. */
const created = new Set(
  Array.from(
    readFileSync(join(ROOT, 'CONTRIBUTING.md'), 'utf8').matchAll(/<!-- create (\S+) -->/g),
    ([, path]) => path,
  ),
);
const exists = (/** @type {string} */ path) => created.has(path) || existsSync(join(ROOT, path));
const packed = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).files;
const inPackage = (/** @type {string} */ path) => exists(path) && isPacked(path, packed);
/** A shallow clone lacks commits that exist. */
const knowsCommits = git('rev-parse', '--is-shallow-repository').trim() === 'false';

/** @type {Record<string, import('./lib/prose.mjs').Line[]>} */
const found = {
  ...Object.fromEntries(RULES.map((rule) => [rule.name, matching(rule, { comments, docs, strings })])),
  'sentence over 40 words': longSentences(docs),
  'page of docs that does not open with its reader': pagesWithoutOpening(docs),
  'commit id that does not exist': knowsCommits ? commitIds(docs).filter(({ id }) => !isCommit(id)) : [],
  'path that does not exist': brokenPaths(docs, exists),
  'link or anchor that does not exist': brokenLinks(lines('*.md'), exists),
  'link from the package to a file outside of it': brokenLinks(
    lines('*.md').filter(({ file }) => isPacked(file, packed)),
    inPackage,
  ),
};

const say = (/** @type {string} */ text) => process.stdout.write(`${text}\n`);
const show = (/** @type {import('./lib/prose.mjs').Line[]} */ of) => {
  for (const { file, number, text } of of) say(`  ${file}:${number}: ${text.trim()}`);
};

const [option, value] = process.argv.slice(2);
/** @type {Record<string, number>} */
const ceilings = JSON.parse(readFileSync(CEILINGS, 'utf8'));
if (option === '--list' && !(value in found))
  say(`There is no rule "${value}". There are: ${Object.keys(found).join('; ')}`);
if (option === '--list') show(found[value] ?? []);
if (option === '--draw') {
  const errors = strings.filter(({ file, text }) => file.startsWith('src/') && /[a-z]\. [A-Z].*\.$/.test(text));
  const parts = { comment: [blocksOf(comments), 30], error: [errors, 10], paragraph: [blocksOf(proseLines(docs)), 10] };
  for (const [what, [from, count]] of /** @type {[string, [import('./lib/prose.mjs').Line[], number]][]} */ (
    Object.entries(parts)
  ))
    for (const { file, number, text } of drawn(from, count, Number(value)))
      say(`${what} ${file}:${number}\n    ${text}`);
}
let failed = 0;
for (const [name, { length }] of Object.entries(found)) {
  const ceiling = ceilings[name] ?? 0;
  say(`${length > ceiling ? 'FAILED ' : ''}${name}: ${length}, at most ${ceiling}`);
  if (length <= ceiling) continue;
  failed++;
  say(`  Rewrite the new lines. All of them: node scripts/prose.mjs --list "${name}"`);
}
if (option === '--store') {
  const lower = Object.entries(found).map(([name, { length }]) => [name, Math.min(length, ceilings[name] ?? length)]);
  writeFileSync(CEILINGS, `${JSON.stringify(Object.fromEntries(lower), null, 2)}\n`);
}
process.exitCode = failed === 0 ? 0 : 1;
