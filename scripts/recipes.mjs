/**
 * Applies the recipes of CONTRIBUTING.md ("Add a ...") to a copy of the checkout, runs their commands, and prints the files that each
 * recipe changes. `node scripts/recipes.mjs [words]`: words select recipes by their title. A stage of `npm test -- --full`.
 *
 * A comment before a code block says how the block is used:
 *   <!-- create PATH -->                    <!-- append PATH -->
 *   <!-- insert PATH after "LINE" -->       before or after the one line that contains LINE
 *   <!-- run -->                            each line is a command, which must exit with 0; also: run, exits 3, prints "TEXT"
 * Comments without a block:
 *   <!-- replace PATH "FROM" "TO" -->
 *   <!-- fails N PATH "FROM" "TO": COMMAND -->   after the replacement, COMMAND ends with "N failed"
 */

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { exitOnSetupError, needsShell, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** @typedef {{ order: string, block: string }} Step */

const ORDER = /^<!-- ((?:create|append|insert|replace|run|fails)\b.*?) -->$/;

/**
 * Returns the recipes of a document by title, each as a list of orders (comments) with the code block after each.
 * @param {string} markdown
 * @returns {Map<string, Step[]>}
 */
export function readRecipes(markdown) {
  /** @type {Map<string, Step[]>} */
  const recipes = new Map();
  const lines = markdown.split('\n');
  let title = '';
  for (let i = 0; i < lines.length; i++) {
    title = /^## (Add .*)/.exec(lines[i])?.[1] ?? (lines[i].startsWith('## ') ? '' : title);
    const order = ORDER.exec(lines[i])?.[1];
    if (!order) continue;
    recipes.set(title, [
      ...(recipes.get(title) ?? []),
      { order, block: /^(fails|replace)/.test(order) ? '' : blockAfter(lines, i) },
    ]);
  }
  return recipes;
}

/**
 * Returns the code block that follows a line. The block is fenced, or indented by four spaces.
 * @param {string[]} lines
 * @param {number} at
 */
function blockAfter(lines, at) {
  const start = lines.findIndex((line, i) => i > at && line.trim() !== '');
  if (lines[start].startsWith('```')) {
    const end = lines.findIndex((line, i) => i > start && line.startsWith('```'));
    return `${lines.slice(start + 1, end).join('\n')}\n`;
  }
  if (!lines[start].startsWith('    '))
    throw new SetupError(`CONTRIBUTING.md: no code block follows line ${at + 1}, "${lines[at]}".`);
  const end = lines.findIndex((line, i) => i > start && !line.startsWith('    '));
  return lines
    .slice(start, end)
    .map((line) => `${line.slice(4)}\n`)
    .join('');
}

/**
 * Returns the words and "quoted texts" of an order.
 * @param {string} order
 */
const wordsOf = (order) =>
  [...order.matchAll(/"((?:[^"\\]|\\.)*)"|[^\s":]+/g)].map(([word, quoted]) => quoted?.replace(/\\(.)/g, '$1') ?? word);

/**
 * Executes one step in `folder`. Throws Error if that fails, or if a command does not end as the step says.
 * @param {Step} step
 * @param {string} folder
 */
function apply({ order, block }, folder) {
  const [verb, ...rest] = wordsOf(order.replace(/^run,/, 'run '));
  const path = join(folder, rest[0] ?? '');
  const read = () => readFileSync(path, 'utf8');
  if (verb === 'create') {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, block);
  } else if (verb === 'append') writeFileSync(path, read() + block);
  else if (verb === 'insert') writeFileSync(path, inserted(read(), block, rest));
  else if (verb === 'replace') replaceIn(folder, rest);
  else if (verb === 'run') runAll(order, block, folder);
  else breakAndRun(folder, rest, order.slice(order.indexOf(': ') + 2));
}

/**
 * @param {string} order
 * @param {string} block one command per line
 * @param {string} folder
 */
function runAll(order, block, folder) {
  const exits = Number(/exits (\d+)/.exec(order)?.[1] ?? 0);
  const prints = /prints "(.*)"/.exec(order)?.[1] ?? '';
  for (const command of block.trimEnd().split('\n')) {
    const { status, output } = run(command, folder);
    if (status !== exits || !output.includes(prints))
      throw new Error(`${command} exits with ${status}; wanted: ${exits}, "${prints}"\n${output}`);
  }
}

/**
 * @param {string} text
 * @param {string} block
 * @param {string[]} words path, 'before' or 'after', part of a line
 */
function inserted(text, block, [path, where, part]) {
  const lines = text.split('\n');
  const found = lines.flatMap((line, i) => (line.includes(part) ? [i] : []));
  if (found.length !== 1) throw new Error(`${path} has ${found.length} lines with "${part}"; wanted: 1`);
  lines.splice(found[0] + (where === 'after' ? 1 : 0), 0, block.replace(/\n$/, ''));
  return lines.join('\n');
}

/**
 * Replaces a text in a file and returns a function that undoes the replacement.
 * @param {string} folder
 * @param {string[]} words path, the text, its replacement
 */
function replaceIn(folder, [file, from, to]) {
  const path = join(folder, file);
  const text = readFileSync(path, 'utf8');
  if (!text.includes(from)) throw new Error(`${file} has no "${from}"`);
  writeFileSync(
    path,
    text.replace(from, () => to),
  );
  return () => writeFileSync(path, text);
}

/**
 * @param {string} folder
 * @param {string[]} words
 * @param {string} command
 */
function breakAndRun(folder, [count, file, from, to], command) {
  const undo = replaceIn(folder, [file, from, to]);
  const { stdout } = run(command, folder);
  undo();
  const last = stdout.trimEnd().split('\n').at(-1) ?? '';
  if (!last.endsWith(` ${count} failed`))
    throw new Error(`with "${to}" for "${from}" in ${file}, ${command} ends with "${last}"; wanted: ${count} failed`);
}

/**
 * @param {string} command
 * @param {string} folder
 */
function run(command, folder) {
  const env = { ...process.env, TEST_RESULTS: join(folder, 'test-results'), FULL_TESTS: '', WEBGRPO_RECIPE: '1' };
  const { status, stdout, stderr } = spawnSync(command, { cwd: folder, env, shell: true, encoding: 'utf8' });
  return { status, stdout, output: stdout + stderr };
}

/** @param {string[]} args */
function git(...args) {
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8', shell: needsShell('git') });
  if (status !== 0) throw new SetupError(`git ${args.join(' ')}: ${stderr}`, 1);
  return stdout;
}

/**
 * Runs a recipe and returns the files that it changes, as git reports them.
 * @param {Step[]} steps
 */
function tryRecipe(steps) {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-recipe-'));
  git('worktree', 'add', '--detach', '--force', folder, 'HEAD');
  try {
    symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'), 'junction');
    for (const step of steps) apply(step, folder);
    const changed = git('-C', folder, 'status', '--porcelain', '--untracked-files=all').trimEnd().split('\n');
    return changed.map((line) => line.slice(3)).filter((path) => !/^(node_modules|test-results|runs)/.test(path));
  } finally {
    git('worktree', 'remove', '--force', folder);
  }
}

try {
  if (process.env['WEBGRPO_RECIPE'] !== undefined)
    throw new SetupError(
      'A command of a recipe runs the recipes again. Write the test file\'s whole name, "recipes.test".',
      1,
    );
  const words = process.argv.slice(2);
  setup();
  const recipes = readRecipes(readFileSync(join(ROOT, 'CONTRIBUTING.md'), 'utf8'));
  const isChosen = (/** @type {string} */ title) => words.length === 0 || words.some((word) => title.includes(word));
  const chosen = [...recipes].filter(([title]) => isChosen(title));
  if (chosen.length === 0)
    throw new SetupError(
      `No recipe has "${words.join('" or "')}" in its title. There are: ${[...recipes].map(([title]) => title).join('; ')}.`,
    );
  process.stdout.write('| recipe | files | which |\n| --- | --- | --- |\n');
  for (const [title, steps] of chosen) {
    try {
      const files = tryRecipe(steps);
      process.stdout.write(`| ${title} | ${files.length} | ${files.join(', ')} |\n`);
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      process.stdout.write(`| ${title} | FAILED | |\n${error.message}\n`);
      process.exitCode = 1;
    }
  }
} catch (error) {
  exitOnSetupError(error);
}
