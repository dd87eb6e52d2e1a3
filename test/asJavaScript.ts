/** Source files as JavaScript in a folder of their own, for a test's child process, which any Node runs. */

import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { ModuleKind, ScriptTarget, transpileModule } from 'typescript';

/** `files` from the repository's root, with all that they import but packages; returns the root of what was written. */
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
