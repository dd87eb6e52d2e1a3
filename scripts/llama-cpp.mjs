/**
 * Compares llama.cpp's results on webgrpo's GGUF files to float64: a tiny model of each family in F32, F16 and Q8_0. Installs
 * node-llama-cpp, which contains llama.cpp's binaries (0.7 GB), into a separate folder. The variable NODE_LLAMA_CPP can name a folder that
 * has it already.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError, needsShell, say } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const given = process.env.NODE_LLAMA_CPP;
const folder = given ?? mkdtempSync(join(tmpdir(), 'webgrpo-llama-cpp-'));
try {
  setup();
  if (given === undefined) {
    say('installing node-llama-cpp');
    writeFileSync(join(folder, 'package.json'), '{ "private": true, "type": "module" }\n');
    const install = ['install', '--no-audit', '--no-fund', 'node-llama-cpp@3'];
    execFileSync('npm', install, { cwd: folder, shell: needsShell('npm'), stdio: 'ignore' });
  }
  const vitest = join(ROOT, 'node_modules', 'vitest', 'vitest.mjs');
  process.exitCode = await runNode(vitest, ['run', '--project', 'unit', '--testTimeout', '120000', 'gguf'], {
    cwd: ROOT,
    env: { NODE_LLAMA_CPP: folder },
  });
} catch (error) {
  exitOnSetupError(error);
} finally {
  if (given === undefined) rmSync(folder, { recursive: true, force: true });
}
