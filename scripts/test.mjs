/**
 * `npm test`: set-up, then every check, then one table. `npm test -- unit lint` runs only the stages named; words after
 * them choose test files, as in `npm test -- gpu rmsnorm`. `npm test -- --full` runs every GPU test in Chromium as well.
 * The last line is "N passed, N failed"; the exit code is 0 only when nothing failed.
 */

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { lavapipe, LAVAPIPE_MISSING } from './lib/lavapipe.mjs';
import { exitOnSetupError } from './lib/say.mjs';
import { fileSeconds, fromExitCode, fromPlaywright, fromVitest } from './lib/testResults.mjs';
import { kernelsThatDidNotRun, kernelTestFiles } from './lib/testedKernels.mjs';
import { ROOT, setup } from './setup.mjs';

const RESULTS = join(ROOT, 'node_modules', '.cache', 'webgrpo', 'test-results');
const resultFile = (name) => join(RESULTS, `${name}.json`);
const kernelsFile = (name) => join(RESULTS, `${name}-kernels.txt`);
const bin = (path) => join(ROOT, 'node_modules', path);

const check = (name, file, ...args) => ({ name, args: [file, ...args], count: fromExitCode });
const vitest = (name, project = name) => ({
  name,
  args: [
    bin('vitest/vitest.mjs'),
    ...['run', '--project', project, '--passWithNoTests', '--reporter=default', '--reporter=json'],
    `--outputFile.json=${resultFile(name)}`,
  ],
  env: { KERNELS_RUN: kernelsFile(name) },
  count: fromVitest,
});

/**
 * Lanes run side by side, the stages of a lane one after another. Only what leaves the GPU alone has a neighbour: a
 * software adapter computes on all cores.
 */
const GROUPS = [
  [
    [
      check('types', bin('typescript/bin/tsc'), '-p', '.', '--noEmit'),
      check('lint', bin('eslint/bin/eslint.js'), '.', '--max-warnings', '0'),
      check('format', bin('prettier/bin/prettier.cjs'), '--check', '--log-level', 'warn', '.'),
      check('size', join(ROOT, 'scripts', 'size.mjs')),
    ],
    [vitest('unit')],
  ],
  [[vitest('gpu')]],
  [[{ ...vitest('lavapipe', 'gpu'), files: kernelTestFiles, driver: lavapipe, missing: LAVAPIPE_MISSING }]],
  [[{ ...vitest('browser'), isTimed: false }]],
  [
    [
      {
        name: 'e2e',
        args: [bin('@playwright/test/cli.js'), 'test', '--reporter=list,json', '--pass-with-no-tests'],
        env: { PLAYWRIGHT_JSON_OUTPUT_NAME: resultFile('e2e') },
        count: fromPlaywright,
        isTimed: false,
      },
    ],
  ],
];
const STAGES = GROUPS.flat(2);

/** Runs a stage; `isAlone` = nothing runs beside it, so what it prints may be seen at once. */
async function runStage(stage, env, files, isAlone) {
  const { name, args, env: own, count } = stage;
  const driver = stage.driver?.();
  if (stage.driver && !driver) {
    process.stdout.write(`\n== ${name}\n${stage.missing}\n`);
    return { name, passed: 0, failed: 0, skipped: 0, seconds: 0, cpu: 0, slow: [] };
  }
  const chosen = count === fromExitCode ? [] : [...(stage.files?.(files) ?? files)];
  const all = { ...process.env, ...env, ...own, ...driver, REQUIRE_GPU: '1' };
  if (isAlone) process.stdout.write(`\n== ${name}\n`);
  const started = performance.now();
  const { ok, output, cpu } = await runNode([...args, ...chosen], all, isAlone);
  const seconds = (performance.now() - started) / 1000;
  if (!isAlone) process.stdout.write(`\n== ${name}\n${output}`);
  // Chromium's own processes are waited for by nobody, so their time is not known.
  const known = stage.isTimed === false ? undefined : cpu;
  return { name, seconds, cpu: known, ...count(resultFile(name), ok), slow: fileSeconds(resultFile(name), ROOT) };
}

/** Node on a script. A shell around it, where there is one, tells the processor time of all that it started. */
function runNode(args, env, isLive) {
  const hasShell = process.platform !== 'win32';
  const timed = ['-c', '"$@"; status=$?; times >&3; exit $status', 'sh', process.execPath, ...args];
  const pipe = isLive ? 'inherit' : 'pipe';
  return new Promise((resolve) => {
    const child = spawn(hasShell ? 'sh' : process.execPath, hasShell ? timed : args, {
      stdio: ['ignore', pipe, pipe, 'pipe'],
      cwd: ROOT,
      env,
    });
    let output = '';
    let times = '';
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text) => (output += text));
    child.stdio[3].on('data', (text) => (times += text));
    child.on('error', (error) => resolve({ ok: false, output: `${output}${error.message}\n`, cpu: undefined }));
    child.on('close', (status) => resolve({ ok: status === 0, output, cpu: processorSeconds(times) }));
  });
}

/** The second line of the shell's `times`: user and system time of its children, as in "1m2.34s 0m5.67s". */
function processorSeconds(times) {
  const parts = [...(times.split('\n')[1] ?? '').matchAll(/(\d+)m([\d.]+)s/g)];
  return parts.length === 2 ? parts.reduce((sum, [, m, s]) => sum + 60 * Number(m) + Number(s), 0) : undefined;
}

const runLane = async (lane, env, files, isAlone) => {
  const rows = [];
  for (const stage of lane) rows.push(await runStage(stage, env, files, isAlone));
  return rows;
};

async function runGroup(group, stages, env, files) {
  const lanes = group.map((lane) => lane.filter((stage) => stages.includes(stage))).filter((lane) => lane.length > 0);
  return (await Promise.all(lanes.map((lane) => runLane(lane, env, files, lanes.length === 1)))).flat();
}

function printTable(rows) {
  const line = (name, ...columns) =>
    process.stdout.write(`${name.padEnd(10)}${columns.map((column) => String(column).padStart(10)).join('')}\n`);
  process.stdout.write('\n');
  line('stage', 'passed', 'failed', 'skipped', 'seconds', 'processor');
  for (const { name, passed, failed, skipped, seconds, cpu } of rows)
    line(name, passed, failed, skipped, seconds.toFixed(1), cpu?.toFixed(1) ?? '');
}

/** Seconds of a test file from which on it is listed, and called too slow. A busy machine fails nothing. */
const SLOW = 20;
const TOO_SLOW = 60;

function printSlowFiles(rows) {
  const slow = rows.flatMap(({ name, slow }) => slow.map((file) => ({ ...file, stage: name })));
  const listed = slow.filter(({ seconds }) => seconds > SLOW).sort((a, b) => b.seconds - a.seconds);
  if (listed.length === 0) return;
  process.stdout.write(`\ntest files over ${SLOW} s\n`);
  for (const { stage, file, seconds } of listed)
    process.stdout.write(
      `${seconds.toFixed(1).padStart(8)} ${stage} ${file}${seconds > TOO_SLOW ? `  TOO SLOW: over ${TOO_SLOW} s` : ''}\n`,
    );
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
  const words = process.argv.slice(2);
  const { stages, files } = chosen(words.filter((word) => word !== '--full'));
  const env = setup({ adapter: true, browser: true });
  if (words.includes('--full')) env.FULL_TESTS = '1';
  rmSync(RESULTS, { recursive: true, force: true });
  mkdirSync(RESULTS, { recursive: true });
  const rows = [];
  for (const group of GROUPS) rows.push(...(await runGroup(group, stages, env, files)));
  printSlowFiles(rows);
  // Of a choice of files it would say nothing.
  if (files.length === 0)
    for (const { name } of rows)
      if (existsSync(kernelsFile(name))) process.stdout.write(kernelsThatDidNotRun(name, kernelsFile(name)));
  printTable(rows);
  const sum = (key) => rows.reduce((total, row) => total + row[key], 0);
  process.stdout.write(`${sum('passed')} passed, ${sum('failed')} failed\n`);
  process.exitCode = sum('failed') === 0 ? 0 : 1;
} catch (error) {
  exitOnSetupError(error);
}
