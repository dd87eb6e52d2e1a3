/**
 * `npm test`: set-up, then the everyday checks, then one table. `npm test -- unit lint` runs only the named stages; words after them select
 * test files, as in `npm test -- gpu rmsnorm`.
 *   --full   runs everything: tests on real engines, lavapipe, every GPU test in Chromium, size, docs, bundlers, runtimes, the
 *            short campaign, CONTRIBUTING's recipes, and the everyday tests under load. A stage that only --full has can be named without
 *            it.
 *   --times  stores the seconds of the stages that ran in test/seconds.json
 * The last line is "N passed, N failed"; the exit code is 0 only if nothing failed.
 */

import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureLavapipe } from './lib/lavapipe.mjs';
import { ensureNatsServer } from './lib/natsServer.mjs';
import { isDebian, missingLine } from './lib/requirements.mjs';
import { killRunning, runNodeTimed } from './lib/runNodeTimed.mjs';
import { exitOnSetupError, messageOf, say, SetupError } from './lib/say.mjs';
import { overrunLines, overruns, storedTimes, storeTimes } from './lib/testBudget.mjs';
import { failures, fileSeconds, fromExitCode, fromPlaywright, fromVitest, secondsFile } from './lib/testResults.mjs';
import { kernelsThatDidNotRun, kernelTestFiles } from './lib/testedKernels.mjs';
import { adapterEnv, browserEnv, ROOT, setup } from './setup.mjs';

/**
 * @typedef {Record<string, string>} Env
 * @typedef {object} Stage
 * @property {string} name
 * @property {string[]} args of Node
 * @property {Env} [env]
 * @property {import('./lib/testResults.mjs').Count} count
 * @property {(words: string[]) => string[]} [files] test files for the words of the command line; default: the words
 * @property {import('./lib/requirements.mjs').Program} [needs] the stage is skipped without this program
 * @property {boolean} [isFull] runs with --full, or if it is named
 * @property {boolean} [inChromium] its processes are not awaited by Node, so their processor time is unknown
 * @typedef {import('./lib/testResults.mjs').Counts & { name: string, seconds: number, cpu?: number | undefined,
 *   files: { file: string, seconds: number }[], why?: import('./lib/testResults.mjs').Failure[] }} Row
 * @typedef {Map<import('./lib/requirements.mjs').Program, Env | undefined>} Found programs that were looked for; undefined = missing
 */

const RESULTS = process.env['TEST_RESULTS'] ?? join(ROOT, 'node_modules', '.cache', 'webgrpo', 'test-results');
/** The folder for temporary files of all stages. It is deleted at the end. */
const TEMPORARY = mkdtempSync(join(tmpdir(), 'webgrpo-test-'));
process.on('exit', () => {
  try {
    rmSync(TEMPORARY, { recursive: true, force: true, maxRetries: 3 });
  } catch {
    // A process that a test started still has files open. The system deletes them later.
  }
});
/** @type {NodeJS.Signals | undefined} */
let stoppedBy;
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']))
  process.on(signal, () => {
    if (stoppedBy) process.exit(128 + constants.signals[signal]);
    stoppedBy = signal;
    killRunning('SIGTERM');
    setTimeout(() => killRunning('SIGKILL'), 10_000).unref();
  });
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
 * A script of this folder that only --full runs.
 * @param {string} name
 * @param {string[]} args
 * @returns {Stage}
 */
const fullCheck = (name, ...args) => ({ ...check(name, join(ROOT, 'scripts', `${name}.mjs`), ...args), isFull: true });

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
    `--reporter=${join(ROOT, 'scripts', 'lib', 'fileSecondsReporter.mjs')}`,
  ],
  env: { KERNELS_RUN: kernelsFile(name), FILE_SECONDS: secondsFile(resultFile(name)) },
  count: fromVitest,
  ...more,
});

/** @type {Stage} */
const e2e = {
  name: 'e2e',
  needs: 'browser',
  args: [bin('@playwright/test/cli.js'), 'test', '--reporter=list,json', '--pass-with-no-tests'],
  // By default the cache of compiled tests is in the temporary folder, which is deleted.
  env: {
    PLAYWRIGHT_JSON_OUTPUT_NAME: resultFile('e2e'),
    PWTEST_CACHE_DIR: join(ROOT, 'node_modules', '.cache', 'webgrpo', 'playwright'),
  },
  count: fromPlaywright,
  inChromium: true,
};

/** Builds the page with the scripted engine for e2e, which builds it itself if this stage did not run. */
const page = check('e2e-page', bin('vite/bin/vite.js'), 'build', '--mode', 'scripted', '--logLevel', 'error');

const browser = vitest('browser', { needs: 'browser', inChromium: true });

/** Checks that need no other program. They run while missing programs are searched for and installed. */
const CHECKS = [
  // Every day, `lint` checks the types, too: both need the same program of all files.
  { ...check('types', bin('typescript-7/bin/tsc'), '-p', '.', '--noEmit'), isFull: true },
  check('prose', join(ROOT, 'scripts', 'prose.mjs')),
  {
    ...check('lint', bin('oxlint/bin/oxlint'), '--type-check', '--deny-warnings', '.'),
    // Less garbage collection saves a quarter of its time, for 0.3 GB more memory.
    env: { GOGC: '800' },
  },
  check('format', bin('oxfmt/bin/oxfmt'), '--check', '.'),
];

/**
 * Groups run one after another, the lanes of a group concurrently, the stages of a lane one after another. A software adapter uses all
 * cores, so stages with heavy GPU use run alone.
 * @type {Stage[][][]}
 */
const GROUPS = [
  [
    [fullCheck('size'), fullCheck('docs', '--check'), browser, { ...page, needs: 'browser' }],
    [vitest('unit', {}, 'unit*')],
  ],
  [[vitest('gpu', { needs: 'adapter' })]],
  [[vitest('lavapipe', { files: kernelTestFiles, needs: 'lavapipe', isFull: true }, 'gpu')]],
  [[e2e]],
  [[fullCheck('build'), { ...fullCheck('bundlers'), needs: 'browser' }, fullCheck('runtimes')]],
  [[fullCheck('campaign', '--short')]],
  [[fullCheck('recipes')]],
  [[fullCheck('pressure')]],
];
const STAGES = [...CHECKS, ...GROUPS.flat(2)];

/**
 * Looks for the programs that the stages need, installs what it can, and names what is missing. In CI a missing program is a failure.
 * @param {Stage[]} stages
 * @returns {{ found: Found, failed: Row[] }}
 */
function prepare(stages) {
  /** @type {Found} */
  const found = new Map();
  /** @type {Row[]} */
  const failed = [];
  const look = (
    /** @type {import('./lib/requirements.mjs').Program} */ program,
    /** @type {() => Env | undefined} */ ask,
  ) => {
    try {
      found.set(program, ask());
    } catch (error) {
      if (!(error instanceof SetupError) || error.exitCode === 2) throw error; // exit code 2: the user's own setting is wrong
      found.set(program, undefined);
    }
    if (found.get(program)) return;
    const needy = stages.filter(({ needs }) => needs === program).map(({ name }) => name);
    const skipped = program === 'nats-server' ? 'tests of rooms' : `the stages ${needy.join(', ')}`;
    const line = missingLine(program, skipped);
    if (process.env['CI'] && program !== 'lavapipe') failed.push(failure('set-up', line));
    say(line);
  };
  const isNeeded = (/** @type {string} */ program) => stages.some(({ needs }) => needs === program);
  // Unit tests start command-line tools in Node, which use an adapter if there is one.
  if (stages.some(({ count }) => count !== fromExitCode) || isNeeded('adapter')) {
    look('adapter', adapterEnv);
    look('nats-server', () => (ensureNatsServer() ? {} : undefined));
  }
  if (isNeeded('browser')) look('browser', browserEnv);
  if (isNeeded('lavapipe')) look('lavapipe', ensureLavapipe);
  return { found, failed };
}

/**
 * A failure that belongs to no test.
 * @param {string} name
 * @param {string} message
 * @returns {Row}
 */
const failure = (name, message) => ({
  ...{ name, passed: 0, failed: 1, skipped: 0, seconds: 0, files: [] },
  why: [{ file: 'npm test', test: name, message }],
});

/**
 * @param {Stage} stage
 * @param {Found} found
 * @param {string[]} words
 * @param {boolean} isAlone true if no other stage runs, so that its output is shown live
 * @returns {Promise<Row>}
 */
async function runStage({ name, args, env: own, count, files, needs, inChromium }, found, words, isAlone) {
  if (needs && !found.get(needs)) {
    process.stdout.write(`\n== ${name}\nskipped: ${needs} is missing (see the first lines)\n`);
    return { name, passed: 0, failed: 0, skipped: storedTimes()[name]?.tests ?? 1, seconds: 0, files: [] };
  }
  const testFiles = count === fromExitCode ? [] : (files?.(words) ?? words);
  if (isAlone) process.stdout.write(`\n== ${name}\n`);
  const run = await runNodeTimed([...args, ...testFiles], {
    cwd: ROOT,
    env: {
      ...process.env,
      ...{ TMPDIR: TEMPORARY, TEMP: TEMPORARY, TMP: TEMPORARY },
      ...found.get('adapter'),
      ...found.get('browser'),
      ...own,
      ...(needs && found.get(needs)),
      ...(found.get('nats-server') && { REQUIRE_NATS: '1' }),
      ...(isFull && { FULL_TESTS: '1' }),
    },
    isLive: isAlone,
  });
  if (!isAlone) process.stdout.write(`\n== ${name}\n${run.output}`);
  const row = {
    name,
    seconds: run.seconds,
    cpu: inChromium ? undefined : run.cpu,
    ...count(resultFile(name), run.ok),
    files: fileSeconds(resultFile(name), ROOT),
    why: failures(resultFile(name), ROOT),
  };
  // With words, the files of the words can all belong to another stage.
  return words.length === 0 && testsOf(row) === 0 ? { ...row, ...failure(name, 'It ran no test.') } : row;
}

/** @param {Row} row */
const testsOf = ({ passed, failed, skipped }) => passed + failed + skipped;

/**
 * @param {Stage[][]} group
 * @param {Stage[]} stages the selected stages
 * @param {Found} found
 * @param {string[]} words
 */
async function runGroup(group, stages, found, words) {
  const lanes = group.map((lane) => lane.filter((stage) => stages.includes(stage))).filter((lane) => lane.length > 0);
  return (await Promise.all(lanes.map((lane) => runLane(lane, found, words, lanes.length === 1)))).flat();
}

/**
 * @param {Stage[]} lane
 * @param {Found} found
 * @param {string[]} words
 * @param {boolean} isAlone see runStage
 */
async function runLane(lane, found, words, isAlone) {
  const rows = [];
  for (const stage of lane) if (!stoppedBy) rows.push(await runStage(stage, found, words, isAlone));
  return rows;
}

/** Installs a missing Chromium and nats-server in a separate process, so that other work continues. `prepare` reports failures. */
const install = () =>
  runNodeTimed([join(ROOT, 'scripts', 'setup.mjs'), 'system'], { cwd: ROOT, env: process.env, isLive: true });

/**
 * @param {Row[]} rows
 * @param {number} seconds from start to end
 */
function printTable(rows, seconds) {
  const line = (/** @type {(string | number)[]} */ ...[name, ...columns]) =>
    process.stdout.write(
      `${String(name).padEnd(10)}${columns.map((column) => String(column).padStart(10)).join('')}\n`,
    );
  process.stdout.write('\n');
  line('stage', 'passed', 'failed', 'skipped', 'seconds', 'processor');
  for (const { name, passed, failed, skipped, seconds, cpu } of rows)
    line(name, passed, failed, skipped, seconds.toFixed(1), cpu?.toFixed(1) ?? '');
  process.stdout.write(`set-up and all stages: ${(seconds / 60).toFixed(1)} minutes\n`);
}

/**
 * Returns the seconds of the stages that have test files.
 * @param {Row[]} rows
 */
function timesOf(rows) {
  const tenths = (/** @type {number} */ seconds) => Math.round(seconds * 10) / 10;
  return Object.fromEntries(
    rows
      .filter(({ files }) => files.length > 0)
      .map(({ name, seconds, passed, failed, files }) => [
        name,
        {
          seconds: tenths(seconds),
          tests: passed + failed,
          files: Object.fromEntries(
            files
              .toSorted((a, b) => a.file.localeCompare(b.file))
              .map(({ file, seconds }) => [file.replaceAll('\\', '/'), tenths(seconds)]),
          ),
        },
      ]),
  );
}

/**
 * Prints the failures again at the end, because a reader of a CI log often has only the last lines.
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
 * Splits arguments into the selected stages and parts of file names. Names of stages come first. Throws SetupError.
 * @param {string[]} words
 */
function chosen(words) {
  const isStage = (/** @type {string} */ word) => STAGES.some((stage) => stage.name === word);
  const names = words.filter(isStage);
  const files = words.filter((word) => !isStage(word));
  const stages = STAGES.filter(({ name, isFull: onlyFull }) =>
    names.length > 0 ? names.includes(name) : isFull || !onlyFull,
  );
  const takesFiles = stages.some(({ count }) => count !== fromExitCode);
  if (words.length > 0 && (!isStage(words[0]) || (files.length > 0 && !takesFiles)))
    throw new SetupError(`Unknown stage "${files[0]}". There are ${STAGES.map((stage) => stage.name).join(', ')}.`);
  if (isTimed && (isFull || files.length > 0))
    throw new SetupError(
      '--times stores the times of complete everyday stages. Leave out --full and names of test files.',
    );
  return { stages, files };
}

const words = process.argv.slice(2).filter((word) => word !== '--full' && word !== '--times');
const isFull = process.argv.includes('--full');
const isTimed = process.argv.includes('--times');
const started = performance.now();
/** @type {Row[]} */
const rows = [];

/** Runs the selected stages and adds their rows. */
async function runAll() {
  const { stages, files } = chosen(words);
  // Debian's packages need nothing from npm, so apt-get runs at the same time as npm. Elsewhere Playwright installs a Chromium.
  const needsBrowser = stages.some(({ needs }) => needs === 'browser');
  const early = needsBrowser && isDebian() ? install() : undefined;
  setup();
  rmSync(RESULTS, { recursive: true, force: true });
  mkdirSync(RESULTS, { recursive: true });
  const checks = CHECKS.filter((stage) => stages.includes(stage));
  const [checked] = await Promise.all([runLane(checks, new Map(), files, false), early ?? (needsBrowser && install())]);
  rows.push(...checked);
  if (stoppedBy) return;
  const { found, failed } = prepare(stages);
  rows.push(...failed);
  for (const group of GROUPS) {
    rows.push(...(await runGroup(group, stages, found, files)));
    if (rows.some(({ name, passed }) => name === page.name && passed > 0)) e2e.env = { ...e2e.env, E2E_BUILT: '1' };
  }
  const ran = rows.filter(({ name }) => stages.some((stage) => stage.name === name && stage.count !== fromExitCode));
  if (files.length > 0 && !stoppedBy && ran.every((row) => testsOf(row) === 0))
    rows.push(failure('files', `No test of these stages is in a file named "${files.join('" or "')}".`));
  // With selected test files, or with the additional tests of --full, the shares of time cannot be compared with the stored ones.
  if (files.length > 0) return;
  for (const { name } of rows)
    if (existsSync(kernelsFile(name))) process.stdout.write(kernelsThatDidNotRun(name, kernelsFile(name)));
  if (!isFull) process.stdout.write(overrunLines(overruns(timesOf(rows))));
  if (isTimed) storeTimes(timesOf(rows.filter((row) => row.failed === 0)));
}

try {
  await runAll();
} catch (error) {
  if (error instanceof SetupError && error.exitCode === 2) exitOnSetupError(error);
  if (!(error instanceof SetupError)) process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
  rows.push(failure('npm test', messageOf(error)));
}
if (stoppedBy) rows.push(failure('npm test', `${stoppedBy} ended the run; later stages did not run.`));
printFailures(rows);
printTable(rows, (performance.now() - started) / 1000);
const sum = (/** @type {'passed' | 'failed'} */ key) => rows.reduce((total, row) => total + row[key], 0);
process.stdout.write(`${sum('passed')} passed, ${sum('failed')} failed\n`);
process.exitCode = stoppedBy ? 128 + constants.signals[stoppedBy] : Number(sum('failed') > 0);
