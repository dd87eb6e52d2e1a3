/**
 * `npm test`: set-up, then every check, then one table. `npm test -- unit lint` runs only the stages named; words after
 * them choose test files, as in `npm test -- gpu rmsnorm`. `npm test -- --full` runs every GPU test in Chromium as well, and the short campaign.
 * The last line is "N passed, N failed"; the exit code is 0 only when nothing failed.
 */

import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { lavapipe, LAVAPIPE_MISSING } from './lib/lavapipe.mjs';
import { runNodeTimed } from './lib/runNodeTimed.mjs';
import { exitOnSetupError } from './lib/say.mjs';
import { failures, fileSeconds, fromExitCode, fromPlaywright, fromVitest } from './lib/testResults.mjs';
import { kernelsThatDidNotRun, kernelTestFiles } from './lib/testedKernels.mjs';
import { ROOT, setup } from './setup.mjs';

/**
 * @typedef {Record<string, string>} Env
 * @typedef {object} Stage
 * @property {string} name
 * @property {string[]} args of Node
 * @property {Env} [env]
 * @property {import('./lib/testResults.mjs').Count} count
 * @property {(words: string[]) => string[]} [files] test files for the words of the command line; default: the words
 * @property {() => Env | undefined} [driver] selects another driver; undefined = it is not there
 * @property {boolean} [inChromium] whose processes nobody waits for, so that their time is not known
 * @typedef {import('./lib/testResults.mjs').Counts & { name: string, seconds: number, cpu?: number | undefined,
 *   slow: { file: string, seconds: number }[], why?: import('./lib/testResults.mjs').Failure[] }} Row
 */

const RESULTS = join(ROOT, 'node_modules', '.cache', 'webgrpo', 'test-results');
const resultFile = (/** @type {string} */ name) => join(RESULTS, `${name}.json`);
const kernelsFile = (/** @type {string} */ name) => join(RESULTS, `${name}-kernels.txt`);
const bin = (/** @type {string} */ path) => join(ROOT, 'node_modules', path);

/**
 * @param {string} name
 * @param {string[]} args
 * @returns {Stage}
 */
const check = (name, ...args) => ({ name, args, count: fromExitCode });

/**
 * @param {string} name
 * @param {Partial<Stage>} more
 * @returns {Stage}
 */
const vitest = (name, more = {}, project = name) => ({
  name,
  args: [
    bin('vitest/vitest.mjs'),
    'run',
    '--project',
    project,
    '--passWithNoTests',
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${resultFile(name)}`,
  ],
  env: { KERNELS_RUN: kernelsFile(name) },
  count: fromVitest,
  ...more,
});

/** @type {Stage} */
const e2e = {
  name: 'e2e',
  args: [bin('@playwright/test/cli.js'), 'test', '--reporter=list,json', '--pass-with-no-tests'],
  env: { PLAYWRIGHT_JSON_OUTPUT_NAME: resultFile('e2e') },
  count: fromPlaywright,
  inChromium: true,
};

/**
 * Groups run one after another, the lanes of a group side by side, the stages of a lane one after another. Only what
 * leaves the GPU alone has a neighbour: a software adapter computes on all cores.
 * @type {Stage[][][]}
 */
const GROUPS = [
  [
    [
      check('types', bin('typescript/bin/tsc'), '-p', '.', '--noEmit'),
      check('lint', bin('eslint/bin/eslint.js'), '.', '--max-warnings', '0'),
      check('format', bin('prettier/bin/prettier.cjs'), '--check', '--log-level', 'warn', '.'),
      check('size', join(ROOT, 'scripts', 'size.mjs')),
      check('docs', join(ROOT, 'scripts', 'docs.mjs'), '--check'),
    ],
    [vitest('unit', {}, 'unit*')],
  ],
  [[vitest('gpu')]],
  [[vitest('lavapipe', { files: kernelTestFiles, driver: lavapipe }, 'gpu')]],
  [[vitest('browser', { inChromium: true })]],
  [[e2e]],
  ...(process.argv.includes('--full') ? [[[check('campaign', join(ROOT, 'scripts', 'campaign.mjs'), '--short')]]] : []),
];
const STAGES = GROUPS.flat(2);

/**
 * @param {Stage} stage
 * @param {Env} env
 * @param {string[]} words
 * @param {boolean} isAlone nothing runs beside it, so what it prints is shown at once
 * @returns {Promise<Row>}
 */
async function runStage({ name, args, env: own, count, files, driver, inChromium }, env, words, isAlone) {
  const chosenDriver = driver?.();
  if (driver && !chosenDriver) {
    process.stdout.write(`\n== ${name}\n${LAVAPIPE_MISSING}\n`);
    return { name, passed: 0, failed: 0, skipped: 0, seconds: 0, slow: [] };
  }
  const testFiles = count === fromExitCode ? [] : (files?.(words) ?? words);
  if (isAlone) process.stdout.write(`\n== ${name}\n`);
  const run = await runNodeTimed([...args, ...testFiles], {
    cwd: ROOT,
    env: { ...process.env, ...env, ...own, ...chosenDriver, REQUIRE_GPU: '1' },
    isLive: isAlone,
  });
  if (!isAlone) process.stdout.write(`\n== ${name}\n${run.output}`);
  return {
    name,
    seconds: run.seconds,
    cpu: inChromium ? undefined : run.cpu,
    ...count(resultFile(name), run.ok),
    slow: fileSeconds(resultFile(name), ROOT),
    why: failures(resultFile(name), ROOT),
  };
}

/**
 * @param {Stage[][]} group
 * @param {Stage[]} stages those that were asked for
 * @param {Env} env
 * @param {string[]} words
 */
async function runGroup(group, stages, env, words) {
  const lanes = group.map((lane) => lane.filter((stage) => stages.includes(stage))).filter((lane) => lane.length > 0);
  const rows = lanes.map(async (lane) => {
    const done = [];
    for (const stage of lane) done.push(await runStage(stage, env, words, lanes.length === 1));
    return done;
  });
  return (await Promise.all(rows)).flat();
}

/** @param {Row[]} rows */
function printTable(rows) {
  const line = (/** @type {(string | number)[]} */ ...[name, ...columns]) =>
    process.stdout.write(
      `${String(name).padEnd(10)}${columns.map((column) => String(column).padStart(10)).join('')}\n`,
    );
  process.stdout.write('\n');
  line('stage', 'passed', 'failed', 'skipped', 'seconds', 'processor');
  for (const { name, passed, failed, skipped, seconds, cpu } of rows)
    line(name, passed, failed, skipped, seconds.toFixed(1), cpu?.toFixed(1) ?? '');
}

/** Seconds from which on a test file is listed, and called too slow. A busy machine fails nothing. */
const SLOW = 20;
const TOO_SLOW = 60;

/** @param {Row[]} rows */
function printSlowFiles(rows) {
  const all = rows.flatMap(({ name, slow }) => slow.map((file) => ({ ...file, stage: name })));
  const listed = all.filter(({ seconds }) => seconds > SLOW).sort((a, b) => b.seconds - a.seconds);
  if (listed.length === 0) return;
  process.stdout.write(`\ntest files over ${SLOW} s\n`);
  for (const { stage, file, seconds } of listed) {
    const flag = seconds > TOO_SLOW ? `  TOO SLOW: over ${TOO_SLOW} s` : '';
    process.stdout.write(`${seconds.toFixed(1).padStart(8)} ${stage} ${file}${flag}\n`);
  }
}

/**
 * Again at the end, since who reads the log of a CI run may have its last lines alone.
 * @param {Row[]} rows
 */
function printFailures(rows) {
  for (const { name, failed, why = [] } of rows) {
    if (failed === 0) continue;
    process.stdout.write(`\n${name}: ${failed} failed\n`);
    for (const { file, test, message } of why) process.stdout.write(`  ${file}: ${test}\n    ${message}\n`);
  }
}

/**
 * Names of stages come first, words of files after them.
 * @param {string[]} words
 */
function chosen(words) {
  const isStage = (/** @type {string} */ word) => STAGES.some((stage) => stage.name === word);
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
  const words = process.argv.slice(2);
  const { stages, files } = chosen(words.filter((word) => word !== '--full'));
  const env = {
    ...setup({ adapter: true, browser: true, nats: true }),
    ...(words.includes('--full') && { FULL_TESTS: '1' }),
  };
  rmSync(RESULTS, { recursive: true, force: true });
  mkdirSync(RESULTS, { recursive: true });
  /** @type {Row[]} */
  const rows = [];
  for (const group of GROUPS) rows.push(...(await runGroup(group, stages, env, files)));
  printSlowFiles(rows);
  // Of a choice of files it would say nothing.
  if (files.length === 0)
    for (const { name } of rows)
      if (existsSync(kernelsFile(name))) process.stdout.write(kernelsThatDidNotRun(name, kernelsFile(name)));
  printFailures(rows);
  printTable(rows);
  const sum = (/** @type {'passed' | 'failed'} */ key) => rows.reduce((total, row) => total + row[key], 0);
  process.stdout.write(`${sum('passed')} passed, ${sum('failed')} failed\n`);
  process.exitCode = sum('failed') === 0 ? 0 : 1;
} catch (error) {
  exitOnSetupError(error);
}
