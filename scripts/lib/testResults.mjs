/**
 * Reads the result files of a stage of `npm test`: counts passed and failed tests, and the seconds of each test file. A damaged file, such
 * as one that a killed process left, is read like a missing one.
 */

import { existsSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';

/**
 * @typedef {{ passed: number, failed: number, skipped: number }} Counts
 * @typedef {(resultFile: string, ok: boolean) => Counts} Count `ok` = it ended with exit code 0
 * @typedef {{ status?: string, results: { duration: number, error?: { message?: string } }[] }} PlaywrightTest
 * @typedef {{ file?: string, suites?: Suite[], specs?: { title: string, tests: PlaywrightTest[] }[] }} Suite
 * @typedef {{ status: string, fullName: string, failureMessages: string[] }} VitestTest
 * @typedef {{ name: string, status: string, message?: string, assertionResults: VitestTest[] }} VitestFile
 * @typedef {{ testResults?: VitestFile[], suites?: Suite[] }} Results
 * @typedef {{ file: string, test: string, message: string }} Failure
 */

/** @param {string} file */
function read(file) {
  if (!existsSync(file)) return undefined;
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}

/** The file in which fileSecondsReporter.mjs writes the seconds of each test file, beside the results. @param {string} resultFile */
export const secondsFile = (resultFile) => resultFile.replace(/\.json$/, '-seconds.json');

/**
 * Counts a check that is not a test runner, such as lint, as one test.
 * @type {Count}
 */
export const fromExitCode = (_, ok) => ({ passed: ok ? 1 : 0, failed: ok ? 0 : 1, skipped: 0 });

/** A runner that wrote no results has run no test. */
const noResults = (/** @type {boolean} */ ok) => ({ passed: 0, failed: ok ? 0 : 1, skipped: 0 });

/** @type {Count} */
export function fromVitest(file, ok) {
  const results = read(file);
  if (!results) return noResults(ok);
  const { numPassedTests, numFailedTests, numPendingTests } = results;
  return { passed: numPassedTests, failed: atLeastOne(numFailedTests, ok), skipped: numPendingTests };
}

/** @type {Count} */
export function fromPlaywright(file, ok) {
  const results = read(file);
  if (!results) return noResults(ok);
  const { expected, unexpected, flaky, skipped } = results.stats;
  return { passed: expected + flaky, failed: atLeastOne(unexpected, ok), skipped };
}

/**
 * Returns the number of failures: at least one if the stage failed. A test file that failed to load has no failed test.
 * @param {number} failed
 * @param {boolean} ok
 */
const atLeastOne = (failed, ok) => (ok ? failed : Math.max(1, failed));

/**
 * Returns the seconds of every test file of a stage; [] for a stage without test files.
 * @param {string} resultFile
 * @param {string} root
 * @returns {{ file: string, seconds: number }[]}
 */
export function fileSeconds(resultFile, root) {
  /** @type {Results} */
  const { suites = [] } = read(resultFile) ?? {};
  /** @type {Record<string, number>} */
  const ofVitest = read(secondsFile(resultFile)) ?? {};
  return [
    ...Object.entries(ofVitest).map(([name, seconds]) => ({ file: relative(root, name), seconds })),
    ...suites.map((suite) => ({ file: `test/e2e/${suite.file}`, seconds: suiteMs(suite) / 1000 })),
  ];
}

/**
 * @param {Suite} suite
 * @returns {number}
 */
function suiteMs({ suites = [], specs = [] }) {
  const own = specs.flatMap(({ tests }) => tests.flatMap(({ results }) => results.map(({ duration }) => duration)));
  return [...own, ...suites.map(suiteMs)].reduce((a, b) => a + b, 0);
}

/**
 * Returns the failures of a stage, each with the first line of its message; [] for a stage that is not a test runner.
 * @param {string} resultFile
 * @param {string} root
 * @returns {Failure[]}
 */
export function failures(resultFile, root) {
  /** @type {Results} */
  const { testResults = [], suites = [] } = read(resultFile) ?? {};
  const ofVitest = testResults.flatMap(({ name, status, message, assertionResults }) => {
    const file = relative(root, name);
    const failed = assertionResults.filter((test) => test.status === 'failed');
    if (failed.length === 0 && status === 'failed') return [failure(file, '(the file)', message)];
    return failed.map(({ fullName, failureMessages }) => failure(file, fullName, failureMessages[0]));
  });
  return [...ofVitest, ...suites.flatMap((suite) => suiteFailures(suite, `test/e2e/${suite.file}`))];
}

/**
 * @param {Suite} suite
 * @param {string} file
 * @returns {Failure[]}
 */
function suiteFailures({ suites = [], specs = [] }, file) {
  const own = specs.flatMap(({ title, tests }) =>
    tests
      .filter(({ status }) => status === 'unexpected')
      .map(({ results }) => failure(file, title, results.at(-1)?.error?.message)),
  );
  return [...own, ...suites.flatMap((suite) => suiteFailures(suite, file))];
}

/** Matches terminal colours in the messages of test runners. */
const COLOURS = new RegExp(`${String.fromCharCode(27)}\\[[0-9;]*m`, 'g');

/**
 * @param {string} file
 * @param {string} test
 * @param {string} [message]
 * @returns {Failure}
 */
const failure = (file, test, message = '') => ({
  file,
  test,
  message: message.replace(COLOURS, '').trim().split('\n')[0].slice(0, 300),
});
