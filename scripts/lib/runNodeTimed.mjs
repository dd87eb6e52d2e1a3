/** Runs Node on a script and returns its wall time and processor time. */

import { spawn } from 'node:child_process';

/**
 * @typedef {object} TimedRun @property {boolean} ok @property {string} output '' if the output was shown immediately @property {number}
 * seconds @property {number | undefined} cpu of the process and all awaited processes below it; undefined if no shell reports it
 */

/** Processes that run now, each with a process group of its own. @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set();

/**
 * Sends a signal to all processes of `runNodeTimed`, and to the processes that these have started.
 * @param {NodeJS.Signals} signal
 */
export function killRunning(signal) {
  for (const child of running)
    try {
      if (process.platform === 'win32' || child.pid === undefined) child.kill(signal);
      else process.kill(-child.pid, signal);
    } catch {
      // All processes of the group have ended.
    }
}

/**
 * Never rejects: a process that cannot be started has `ok` false.
 * @param {string[]} args
 * @param {{ cwd: string, env: NodeJS.ProcessEnv, isLive: boolean }} options isLive shows the output immediately
 * @returns {Promise<TimedRun>}
 */
export function runNodeTimed(args, { cwd, env, isLive }) {
  const started = performance.now();
  const pipe = isLive ? 'inherit' : 'pipe';
  const timed = ['-c', '"$@"; status=$?; times >&3; exit $status', 'sh', process.execPath, ...args];
  const [command, given] = process.platform === 'win32' ? [process.execPath, args] : ['sh', timed];
  return new Promise((resolve) => {
    const detached = process.platform !== 'win32'; // on Windows it would open a console window
    const child = spawn(command, given, { stdio: ['ignore', pipe, pipe, 'pipe'], cwd, env, detached });
    running.add(child);
    let output = '';
    let times = '';
    const end = (/** @type {boolean} */ ok) => {
      running.delete(child);
      resolve({ ok, output, seconds: (performance.now() - started) / 1000, cpu: processorSeconds(times) });
    };
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text) => (output += text));
    child.stdio[3]?.on('data', (text) => (times += text));
    child.on('error', (error) => {
      output += `${error.message}\n`;
      end(false);
    });
    child.on('close', (status) => end(status === 0));
  });
}

/**
 * Parses the second line of the shell's `times`, about its children: user and system, as in "1m2.34s 0m5.67s".
 * @param {string} times
 */
export function processorSeconds(times) {
  const parts = [...(times.split('\n')[1] ?? '').matchAll(/(\d+)m([\d.]+)s/g)];
  return parts.length === 2 ? parts.reduce((sum, [, m, s]) => sum + 60 * Number(m) + Number(s), 0) : undefined;
}
