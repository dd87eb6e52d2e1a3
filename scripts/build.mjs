/**
 * `npm run build`: builds library with types, command line and page into dist/. Prints the sizes of page and library and fails if one is
 * over its limit.
 */

import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { exitOnSetupError, runLoud, SetupError } from './lib/say.mjs';
import { checkSizes } from './lib/size.mjs';
import { ROOT, setup } from './setup.mjs';

const STEPS = [
  ['types', 'typescript/bin/tsc', '-p', 'tsconfig.build.json'],
  ['library', 'vite/bin/vite.js', 'build', '--config', 'vite.lib.config.ts', '--logLevel', 'warn'],
  [
    'command line',
    'vite/bin/vite.js',
    'build',
    '--config',
    'vite.cli.config.ts',
    '--outDir',
    'dist/cli',
    '--mode',
    'package',
    '--logLevel',
    'warn',
  ],
  ['page', 'vite/bin/vite.js', 'build', '--logLevel', 'warn'],
];

try {
  setup();
  rmSync(join(ROOT, 'dist'), { recursive: true, force: true });
  for (const [name, file, ...args] of STEPS) {
    process.stderr.write(`build: ${name}\n`);
    if (!runLoud(process.execPath, [join(ROOT, 'node_modules', file), ...args]))
      throw new SetupError(`The ${name} did not build. Its messages are above.`);
  }
  await printInputs();
  const { lines, ok } = await checkSizes({ library: join(ROOT, 'dist/lib/index.js'), page: join(ROOT, 'dist/demo') });
  process.stdout.write(`${lines.join('\n')}\n`);
  if (!ok) throw new SetupError('A size is over its limit. Load what is seldom used by a dynamic import.');
} catch (error) {
  exitOnSetupError(error);
}

/** Replaces config types that TypeScript infers with documented ones, in the declarations of dist/types. */
async function printInputs() {
  const { runnerImport } = await import('vite');
  const { inline } = await import('./lib/inline.mjs');
  /** @type {{ module: typeof import('./lib/printedInputs.ts') }} */
  const { module } = await runnerImport(join(ROOT, 'scripts/lib/printedInputs.ts'), {
    root: ROOT,
    logLevel: 'error',
    plugins: [inline()],
  });
  for (const [file, text] of Object.entries(module.printedInputs()))
    writeFileSync(join(ROOT, 'dist/types', file.replace(/\.ts$/, '.d.ts')), text);
}
