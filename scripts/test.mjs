/**
 * `npm test`: set-up, then every check, then one table. `npm test -- unit lint` runs only the stages named; words after
 * them choose test files, as in `npm test -- gpu rmsnorm`.
 * The last line is "N passed, N failed"; the exit code is 0 only when nothing failed.
 */

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { exitOnSetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const RESULTS = join(ROOT, 'node_modules', '.cache', 'webgrpo', 'test-results');
const bin = (path) => join(ROOT, 'node_modules', path);

const check = (name, file, ...args) => ({ name, args: [bin(file), ...args], count: fromExitCode });
const vitest = (name) => ({
  name,
  args: [
    bin('vitest/vitest.mjs'),
    ...['run', '--project', name, '--passWithNoTests', '--reporter=default', '--reporter=json'],
    `--outputFile.json=${resultFile(name)}`,
  ],
  count: fromVitest,
});

const STAGES = [
  check('types', 'typescript/bin/tsc', '-p', '.', '--noEmit'),
  check('lint', 'eslint/bin/eslint.js', '.', '--max-warnings', '0'),
  check('format', 'prettier/bin/prettier.cjs', '--check', '--log-level', 'warn', '.'),
  { name: 'size', args: [join(ROOT, 'scripts', 'size.mjs')], count: fromExitCode },
  vitest('unit'),
  vitest('gpu'),
  vitest('browser'),
  {
    name: 'e2e',
    args: [bin('@playwright/test/cli.js'), 'test', '--reporter=list,json', '--pass-with-no-tests'],
    env: { PLAYWRIGHT_JSON_OUTPUT_NAME: resultFile('e2e') },
    count: fromPlaywright,
  },
];

function resultFile(name) {
  return join(RESULTS, `${name}.json`);
}

/** A check without tests of its own counts as one. */
function fromExitCode(name, ok) {
  return { passed: ok ? 1 : 0, failed: ok ? 0 : 1, skipped: 0 };
}

function fromVitest(name, ok) {
  if (!existsSync(resultFile(name))) return fromExitCode(name, ok);
  const { numPassedTests, numFailedTests, numPendingTests } = JSON.parse(readFileSync(resultFile(name), 'utf8'));
  return { passed: numPassedTests, failed: atLeastOne(numFailedTests, ok), skipped: numPendingTests };
}

function fromPlaywright(name, ok) {
  if (!existsSync(resultFile(name))) return fromExitCode(name, ok);
  const { expected, unexpected, flaky, skipped } = JSON.parse(readFileSync(resultFile(name), 'utf8')).stats;
  return { passed: expected + flaky, failed: atLeastOne(unexpected, ok), skipped };
}

/** A file that did not even load fails no test, but the stage all the same. */
function atLeastOne(failed, ok) {
  return ok ? failed : Math.max(1, failed);
}

function runStage({ name, args, env: own = {}, count }, env, files) {
  process.stdout.write(`\n== ${name}\n`);
  const started = performance.now();
  const { status } = spawnSync(process.execPath, [...args, ...(count === fromExitCode ? [] : files)], {
    stdio: ['ignore', 'inherit', 'inherit'],
    cwd: ROOT,
    env: { ...process.env, ...env, ...own, REQUIRE_GPU: '1' },
  });
  const seconds = (performance.now() - started) / 1000;
  return { name, seconds, ...count(name, status === 0) };
}

function printTable(rows) {
  const line = (name, passed, failed, skipped, seconds) =>
    `${name.padEnd(10)}${String(passed).padStart(8)}${String(failed).padStart(8)}${String(skipped).padStart(9)}${seconds.padStart(9)}\n`;
  process.stdout.write(`\n${line('stage', 'passed', 'failed', 'skipped', 'seconds')}`);
  for (const row of rows)
    process.stdout.write(line(row.name, row.passed, row.failed, row.skipped, row.seconds.toFixed(1)));
}

/** Names of stages come first, words of files after them. */
function chosen(words) {
  const isStage = (word) => STAGES.some((stage) => stage.name === word);
  const names = words.filter(isStage);
  if (words.length === 0 || isStage(words[0]))
    return {
      stages: names.length > 0 ? STAGES.filter((stage) => names.includes(stage.name)) : STAGES,
      files: words.filter((word) => !isStage(word)),
    };
  process.stderr.write(`No stage "${words[0]}"; there are ${STAGES.map((stage) => stage.name).join(', ')}.\n`);
  process.exit(2);
}

try {
  const { stages, files } = chosen(process.argv.slice(2));
  const env = setup({ adapter: true, browser: true });
  rmSync(RESULTS, { recursive: true, force: true });
  mkdirSync(RESULTS, { recursive: true });
  const rows = stages.map((stage) => runStage(stage, env, files));
  printTable(rows);
  const sum = (key) => rows.reduce((total, row) => total + row[key], 0);
  process.stdout.write(`${sum('passed')} passed, ${sum('failed')} failed\n`);
  process.exitCode = sum('failed') === 0 ? 0 : 1;
} catch (error) {
  exitOnSetupError(error);
}
