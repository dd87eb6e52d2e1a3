/** Compiles source files to JavaScript in a new folder, so that a test's child process can run them in any version of Node. */

import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { transformWithOxc } from 'vite';

/**
 * Writes `files` (relative to the repository's root) and everything that they import, except packages. Returns the root of the written
 * files.
 */
export async function asJavaScript(...files: string[]): Promise<string> {
  const root = mkdtempSync(join(tmpdir(), 'webgrpo-javascript-'));
  for (const file of files) {
    const { code } = await transformWithOxc(readFileSync(file, 'utf8'), file, { target: 'es2022', sourcemap: false });
    const path = join(root, file.replace(/\.ts$/, '.js'));
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, code.replace(/(["']\.{1,2}\/[^"']+)\.ts(["'])/g, '$1.js$2'));
  }
  writeFileSync(join(root, 'package.json'), '{"type":"module"}');
  return root;
}
