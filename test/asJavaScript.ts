/** Compiles source files to JavaScript in a new folder, so that a test's child process can run them in any version of Node. */

import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { ModuleKind, ScriptTarget, transpileModule } from 'typescript';

/**
 * Writes `files` (relative to the repository's root) and everything that they import, except packages. Returns the root of the written
 * files.
 */
export function asJavaScript(...files: string[]): string {
  const root = mkdtempSync(join(tmpdir(), 'webgrpo-javascript-'));
  const options = { module: ModuleKind.ESNext, target: ScriptTarget.ES2022, rewriteRelativeImportExtensions: true };
  for (const file of files) {
    const { outputText } = transpileModule(readFileSync(file, 'utf8'), { compilerOptions: options });
    const path = join(root, file.replace(/\.ts$/, '.js'));
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, outputText);
  }
  writeFileSync(join(root, 'package.json'), '{"type":"module"}');
  return root;
}
