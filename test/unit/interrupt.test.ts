/**
 * Tests signals: the first requests a stop that saves, a second ends the process, and a signal that npm forwards in addition counts once.
 */

import { spawnSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { asJavaScript } from '../asJavaScript.ts';

const root = await asJavaScript('src/cli/process/interrupt.ts', 'src/cli/process/io.ts');

/** Runs `program` in a separate process with a simulated clock `now`, and sends it signals. */
function run(program: string) {
  const { status, signal, stdout, stderr } = spawnSync(
    process.execPath,
    [
      '--input-type=module',
      '-e',
      `import { writeSync } from 'node:fs';
      import { onInterrupt } from '${pathToFileURL(`${root}/src/cli/process/interrupt.js`).href}';
      setInterval(() => {}, 1000); // keeps the process alive like a run
      let now = 1000;
      performance.now = () => now;
      const say = (words) => writeSync(1, words + '. ');
      const get = async (signal) => {
        const heard = new Promise((resolve) => process.once(signal, resolve));
        process.kill(process.pid, signal);
        await heard;
      };
      process.on('exit', (code) => say('exit ' + code));
      ${program}
      say('lives');
      process.exit(0);`,
    ],
    { encoding: 'utf8' },
  );
  return { status, signal, said: stdout, stderr };
}

test.each([
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
])('%s stops the run, and again ends the process by itself, which a shell calls %i', (signal, code) => {
  const ended = run(`
    onInterrupt(() => say('stop'));
    await get('${signal}');
    now += 50; // npm forwards the signal that the terminal has sent already
    await get('${signal}');
    say('once');
    now += 1000;
    await get('${signal}');`);
  expect(ended).toEqual({ status: null, signal, said: `stop. once. exit ${code}. `, stderr: '' });
});

test('while there is nothing to save, the first signal ends the process', () => {
  const ended = run(`
    const done = onInterrupt(() => say('stop'));
    done();
    await get('SIGTERM');`);
  expect(ended).toEqual({ status: null, signal: 'SIGTERM', said: 'exit 143. ', stderr: '' });
});
