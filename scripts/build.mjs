/** `npm run build`: library with types, command line and page into dist/. Prints the size of the library and fails over its limit. */

import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { exitOnSetupError, runLoud, SetupError } from './lib/say.mjs';
import { checkSize } from './lib/size.mjs';
import { ROOT, setup } from './setup.mjs';

const STEPS = [
  ['types', 'typescript/bin/tsc', '-p', 'tsconfig.build.json'],
  ['library', 'vite/bin/vite.js', 'build', '--config', 'vite.lib.config.ts', '--logLevel', 'warn'],
  [
    'command line',
    ...['vite/bin/vite.js', 'build', '--config', 'vite.cli.config.ts', '--outDir', 'dist/cli', '--logLevel', 'warn'],
  ],
  ['page', 'vite/bin/vite.js', 'build', '--logLevel', 'warn'],
];

try {
  setup();
  rmSync(join(ROOT, 'dist'), { recursive: true, force: true });
  for (const [name, file, ...args] of STEPS) {
    process.stderr.write(`build: ${name}\n`);
    if (!runLoud(process.execPath, [join(ROOT, 'node_modules', file), ...args]))
      throw new SetupError(`The ${name} did not build; its messages are above.`);
  }
  const { line, ok } = await checkSize(join(ROOT, 'dist/lib/index.js'));
  process.stdout.write(`${line}\n`);
  if (!ok) throw new SetupError('The library is over its size limit; load what is seldom used by a dynamic import.');
} catch (error) {
  exitOnSetupError(error);
}
