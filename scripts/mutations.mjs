/**
 * Breaks the code on purpose, one line at a time, and prints which test detects it:
 *   node scripts/mutations.mjs [--at COMMIT ...] [words]
 * Each commit (default: HEAD) is checked out into a separate folder; words select breaks by name. Prints a Markdown table with one column
 * per commit. Runs only the test files listed for a break, and first checks that they pass on the unchanged code.
 */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, existsSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MUTATIONS } from './lib/mutations.mjs';
import { ROOT, setup } from './setup.mjs';

/** @typedef {import('./lib/mutations.mjs').Mutation} Mutation */

/**
 * @param {string[]} args
 * @returns {string}
 */
function git(...args) {
  const { status, stdout, stderr } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  if (status !== 0) throw new Error(`git ${args.join(' ')}: ${stderr}`);
  return stdout.trim();
}

/**
 * Runs test files and returns the first test that failed, or '' if all tests passed. Projects run one after another, because vitest cannot
 * combine projects with different numbers of workers.
 * @param {string} folder
 * @param {string[]} tests
 * @param {Record<string, string>} env
 * @returns {string}
 */
function firstFailure(folder, tests, env) {
  const there = tests.filter((test) => existsSync(join(folder, test)));
  for (const name of ['unit', 'gpu']) {
    const own = there.filter((test) => test.includes(`/${name}/`));
    const failure = own.length > 0 && failureIn(folder, name === 'unit' ? 'unit*' : name, own, env);
    if (failure) return failure;
  }
  return '';
}

/**
 * @param {string} folder
 * @param {string} project
 * @param {string[]} tests
 * @param {Record<string, string>} env
 * @returns {string}
 */
function failureIn(folder, project, tests, env) {
  const results = join(folder, 'mutation-results.json');
  rmSync(results, { force: true });
  const args = ['run', '--bail', '1', '--reporter=json', `--outputFile.json=${results}`, '--project', project];
  const { status } = spawnSync(process.execPath, [join(ROOT, 'node_modules/vitest/vitest.mjs'), ...args, ...tests], {
    cwd: folder,
    env: { ...process.env, ...env },
    stdio: 'ignore',
    timeout: 1_200_000, // longer than the limit of a poll, so that a test whose event never comes is named
  });
  if (status === 0) return '';
  if (!existsSync(results)) return 'the run died';
  const { testResults } = JSON.parse(readFileSync(results, 'utf8'));
  for (const { name, status: fileStatus, assertionResults } of testResults) {
    const file = name.split('/').at(-1);
    for (const test of assertionResults) if (test.status === 'failed') return `${file}: ${test.fullName}`;
    if (fileStatus === 'failed' && assertionResults.length === 0) return `${file}: it does not load`;
  }
  return 'the run failed without a test';
}

/**
 * Returns the test that detected a break in the checkout at `folder`.
 * @param {string} folder
 * @param {Mutation} mutation
 * @param {Record<string, string>} env
 * @returns {string}
 */
function outcome(folder, { tests, formerly, ...now }, env) {
  const textOf = (/** @type {string} */ file) =>
    existsSync(join(folder, file)) ? readFileSync(join(folder, file), 'utf8') : '';
  const place = [now, ...(formerly ? [formerly] : [])].find(({ file, find }) => textOf(file).split(find).length === 2);
  if (!place) return 'not run: the line is elsewhere';
  const { file, find, replace } = place;
  const path = join(folder, file);
  const text = textOf(file);
  try {
    writeFileSync(
      path,
      text.replace(find, () => replace),
    );
    return firstFailure(folder, tests, env) || 'NOT CAUGHT';
  } finally {
    writeFileSync(path, text);
  }
}

/**
 * Returns one cell for each break, under a commit.
 * @param {string} commit
 * @param {Mutation[]} mutations
 * @param {Record<string, string>} env
 * @returns {string[]}
 */
function column(commit, mutations, env) {
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-mutations-'));
  git('worktree', 'add', '--detach', '--force', folder, commit);
  try {
    symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
    const tests = [...new Set(mutations.flatMap(({ tests }) => tests))];
    const before = firstFailure(folder, tests, env);
    if (before) throw new Error(`At ${commit}, nothing broken, fails ${before}`);
    return mutations.map((mutation) => {
      const caught = outcome(folder, mutation, env);
      process.stderr.write(`${commit.slice(0, 7)} ${mutation.name}: ${caught}\n`);
      return caught;
    });
  } finally {
    git('worktree', 'remove', '--force', folder);
  }
}

const words = process.argv.slice(2);
const commits = words.flatMap((word, i) => (words[i - 1] === '--at' ? [git('rev-parse', '--short', word)] : []));
const chosen = words.filter((word, i) => word !== '--at' && words[i - 1] !== '--at');
if (commits.length === 0) commits.push(git('rev-parse', '--short', 'HEAD'));
const mutations = MUTATIONS.filter(({ name }) => chosen.length === 0 || chosen.some((word) => name.includes(word)));
if (mutations.length === 0) {
  process.stderr.write(
    `No break has "${chosen.join('" or "')}" in its name. The names are in scripts/lib/mutations.mjs.\n`,
  );
  process.exit(2);
}
const env = setup({ adapter: true });
const columns = commits.map((commit) => column(commit, mutations, env));
const cell = (/** @type {string} */ text) => text.replaceAll('|', '\\|');
const row = (/** @type {string[]} */ ...cells) => `| ${cells.map(cell).join(' | ')} |\n`;
process.stdout.write(row('break', 'file', ...commits) + row('---', '---', ...commits.map(() => '---')));
mutations.forEach(({ name, file }, i) => process.stdout.write(row(name, file, ...columns.map((cells) => cells[i]))));
