/** Tests on a real process that code which never returns is reported, and that the process can then be ended as the report says. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';
import { asJavaScript } from '../asJavaScript.ts';

test('code that never returns is reported from outside the main thread, with how to end the process', async () => {
  const root = await asJavaScript('src/cli/process/blockedThread.ts');
  writeFileSync(
    join(root, 'main.mjs'),
    `import { watchMainThread } from './src/cli/process/blockedThread.js';
    process.on('SIGINT', () => {});
    watchMainThread(2);
    for (;;);`,
  );
  const child = spawn(process.execPath, [join(root, 'main.mjs')], { stdio: ['ignore', 'ignore', 'pipe'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  const [said] = (await once(createInterface({ input: child.stderr }), 'line')) as [string];
  expect(said).toContain('has not returned for 2 s');
  expect(said).toContain(`Ctrl-\\ or kill -9 ${child.pid},`);
  child.kill('SIGINT');
  child.kill('SIGQUIT');
  expect(await ended).toEqual([null, 'SIGQUIT']);
});
