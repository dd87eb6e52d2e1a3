/** What a stage of `npm test` passed and failed, and how long its test files took, from what its runner wrote. */

import { existsSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';

const read = (file) => JSON.parse(readFileSync(file, 'utf8'));

/** A check without tests of its own counts as one; so does a runner that died before it wrote its results. */
export function fromExitCode(file, ok) {
  return { passed: ok ? 1 : 0, failed: ok ? 0 : 1, skipped: 0 };
}

export function fromVitest(file, ok) {
  if (!existsSync(file)) return fromExitCode(file, ok);
  const { numPassedTests, numFailedTests, numPendingTests } = read(file);
  return { passed: numPassedTests, failed: atLeastOne(numFailedTests, ok), skipped: numPendingTests };
}

export function fromPlaywright(file, ok) {
  if (!existsSync(file)) return fromExitCode(file, ok);
  const { expected, unexpected, flaky, skipped } = read(file).stats;
  return { passed: expected + flaky, failed: atLeastOne(unexpected, ok), skipped };
}

/** A file that did not even load fails no test, but the stage all the same. */
function atLeastOne(failed, ok) {
  return ok ? failed : Math.max(1, failed);
}

/** [{ file, seconds }] of every test file of a stage, [] for a stage without. */
export function fileSeconds(file, root) {
  if (!existsSync(file)) return [];
  const { testResults, suites } = read(file);
  if (testResults)
    return testResults.map(({ name, startTime, endTime }) => ({
      file: relative(root, name),
      seconds: (endTime - startTime) / 1000,
    }));
  return suites.map((suite) => ({ file: `test/e2e/${suite.file}`, seconds: suiteMs(suite) / 1000 }));
}

function suiteMs({ suites = [], specs = [] }) {
  const runs = specs.flatMap(({ tests }) => tests.flatMap(({ results }) => results));
  return runs.reduce((sum, { duration }) => sum + duration, 0) + suites.reduce((sum, suite) => sum + suiteMs(suite), 0);
}
