/** `npm run build`: library with types, command line and page into dist/. Prints the size of the library. */

import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { exitOnSetupError, runLoud, SetupError } from './lib/say.mjs';
import { gzipBytesOf } from './lib/size.mjs';
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
  const kilobytes = ((await gzipBytesOf(join(ROOT, 'dist/lib/index.js'))) / 1000).toFixed(1);
  process.stdout.write(`library: ${kilobytes} kB gzip, minified, its packages included\n`);
} catch (error) {
  exitOnSetupError(error);
}
