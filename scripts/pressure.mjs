/**
 * Runs the everyday tests on one core next to two busy loops and prints which failed. A test that depends on the speed of the machine fails
 * here. `node scripts/pressure.mjs [words]` takes the same words as `npm test`. The script is a stage of `npm test -- --full`.
 */

import { spawn, spawnSync } from 'node:child_process';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { ROOT } from './setup.mjs';
import { say } from './lib/say.mjs';

/** Stages of `npm test` that contain tests. The results of types, lint and format do not depend on time. */
const STAGES = ['unit', 'gpu', 'browser', 'e2e'];
const words = process.argv.slice(2);

const canPin = spawnSync('taskset', ['-c', '0', process.execPath, '--version']).status === 0;
const pin = canPin ? ['taskset', '-c', '0'] : [];
// Without taskset the tests run on all cores, so the same load needs more busy loops.
const loops = canPin ? 2 : 2 * cpus().length;
if (!canPin) say(`pressure: taskset is missing, so the tests are not pinned; ${loops} busy loops run beside them`);

/**
 * @param {string[]} args of Node
 * @param {'inherit' | 'ignore'} output
 */
function start(args, output) {
  const [command, ...rest] = [...pin, process.execPath, ...args];
  const TEST_RESULTS = join(ROOT, 'node_modules', '.cache', 'webgrpo', 'pressure-results');
  const env = { ...process.env, TEST_RESULTS, FULL_TESTS: '' };
  return spawn(command, rest, { stdio: ['ignore', output, output], cwd: ROOT, env });
}

const busy = Array.from({ length: loops }, () => start(['-e', 'for (;;);'], 'ignore'));
const end = () => busy.forEach((loop) => loop.kill('SIGKILL'));
process.on('exit', end);
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']))
  process.on(signal, () => {
    end();
    process.exit(1);
  });
const tests = start([join(ROOT, 'scripts', 'test.mjs'), ...(words.length > 0 ? words : STAGES)], 'inherit');
tests.on('exit', (code) => process.exit(code ?? 1));
