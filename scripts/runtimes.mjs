/**
 * Runs one GRPO step of the packed library in Node, Bun and Deno: Node and Bun with Dawn (the package `webgpu`), Deno with its own WebGPU.
 * Prints a Markdown table; exits with 1 if one fails. Names select runtimes: `node scripts/runtimes.mjs deno`. Needs a build (`npm run
 * build`) and npm's registry, from which Bun and Deno are installed.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pack } from './lib/bundlers.mjs';
import { exitOnSetupError, messageOf, needsShell, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** The package `webgpu` (Dawn) of this checkout is used, to avoid another download of 132 MB. */
const DAWN = join(ROOT, 'node_modules', 'webgpu');

/** @type {Record<string, { packages: string[], command: (folder: string, file: string) => string[], withDawn: boolean }>} */
const RUNTIMES = {
  node: { packages: [], command: (_, file) => [process.execPath, file], withDawn: true },
  bun: { packages: ['bun@1'], command: (folder, file) => [binary(folder, 'bun'), file], withDawn: true },
  deno: {
    packages: ['deno@2'],
    command: (folder, file) => [binary(folder, 'deno'), 'run', '--allow-all', '--unstable-webgpu', file],
    withDawn: false,
  },
};

/** @param {string} folder @param {string} name */
const binary = (folder, name) => join(folder, 'node_modules', '.bin', name);

/** @param {string} folder @param {string} command @param {string[]} args */
function run(folder, command, ...args) {
  try {
    return execFileSync(command, args, {
      cwd: folder,
      shell: needsShell(command),
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 300_000,
    });
  } catch (error) {
    const { stdout, stderr, message } = /** @type {{ stdout: string, stderr: string, message: string }} */ (error);
    throw new Error(`${message}\n${stdout}${stderr}`, { cause: error });
  }
}

/** @param {string} name @param {string} tarball */
function tryRuntime(name, tarball) {
  const folder = mkdtempSync(join(tmpdir(), `webgrpo-${name}-`));
  try {
    const { packages, command, withDawn } = RUNTIMES[name];
    writeFileSync(join(folder, 'package.json'), '{ "private": true, "type": "module" }\n');
    // Bun and Deno download their programs in an install script.
    run(
      folder,
      'npm',
      'install',
      '--no-audit',
      '--no-fund',
      '--prefer-offline',
      '--ignore-scripts=false',
      tarball,
      ...packages,
    );
    if (withDawn)
      run(folder, 'npm', 'install', '--no-audit', '--no-fund', '--ignore-scripts', '--install-links=false', DAWN);
    const source = readFileSync(join(ROOT, 'test', 'e2e', 'bundled', 'runtime.js'), 'utf8');
    writeFileSync(join(folder, 'main.js'), source);
    const result = run(folder, .../** @type {[string, ...string[]]} */ (command(folder, 'main.js')))
      .trim()
      .split('\n')
      .at(-1);
    return { ok: true, result };
  } catch (error) {
    say(`${name}: ${messageOf(error)}`);
    return { ok: false, result: '' };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

try {
  const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(RUNTIMES);
  const unknown = names.find((name) => !(name in RUNTIMES));
  if (unknown) throw new SetupError(`No runtime "${unknown}". There are ${Object.keys(RUNTIMES).join(', ')}.`);
  setup();
  const tarballs = mkdtempSync(join(tmpdir(), 'webgrpo-pack-'));
  const tarball = pack(ROOT, tarballs);
  process.stdout.write('| runtime | a GRPO step | what it printed |\n| --- | --- | --- |\n');
  for (const name of names) {
    const { ok, result } = tryRuntime(name, tarball);
    process.stdout.write(`| ${name} | ${ok ? 'yes' : 'NO'} | ${result} |\n`);
    if (!ok) process.exitCode = 1;
  }
  rmSync(tarballs, { recursive: true });
} catch (error) {
  exitOnSetupError(error);
}
