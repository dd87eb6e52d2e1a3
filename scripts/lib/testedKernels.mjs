/** Which kernels there are, which test files are theirs, and which of them no test ran. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../setup.mjs';

/** Names of files, and the text of each. */
function writtenKernels() {
  const files = readdirSync(join(ROOT, 'kernels')).filter((file) => file.endsWith('.wgsl'));
  return files.map((file) => ({
    name: file.slice(0, -'.wgsl'.length),
    code: readFileSync(join(ROOT, 'kernels', file), 'utf8'),
  }));
}

/**
 * Those that are printed, as test/gpu/kernelsRun.ts wrote them.
 * @param {string} file
 */
function printedKernels(file) {
  if (!existsSync(file)) return [];
  /** @type {Record<string, string>} */
  const texts = JSON.parse(readFileSync(file, 'utf8'));
  return Object.entries(texts).map(([name, code]) => ({ name, code }));
}

/** Test files of families, and of what is true of many kernels. */
const FAMILIES = ['matmul', 'attention', 'shaderCompiler', 'pack_unpack', 'halfKernels', 'halfModel', 'rowGrid'];

/**
 * The kernels' test files, or those of them that a word names.
 * @param {string[]} words
 */
export function kernelTestFiles(words) {
  const starts = [...FAMILIES, ...writtenKernels().map(({ name }) => name)];
  const files = readdirSync(join(ROOT, 'test', 'gpu')).filter(
    (file) => file.endsWith('.test.ts') && starts.some((start) => file.startsWith(start)),
  );
  const named = words.length === 0 ? files : files.filter((file) => words.some((word) => file.includes(word)));
  return named.map((file) => `test/gpu/${file}`);
}

/**
 * One paragraph on a stage. `file` has a label of a pipeline on each line: the kernel's name, # and its number; src/gpu/halves.ts
 * numbers forms for halves from 2^20 on.
 * @param {string} stage
 * @param {string} file
 */
export function kernelsThatDidNotRun(stage, file) {
  const ran = new Set();
  const ranOnHalves = new Set();
  for (const label of readFileSync(file, 'utf8').trim().split('\n')) {
    const [pipeline, id] = label.split(',')[0].split('#');
    const name = pipeline.replace(/^(policy_loss|policy_stats)_.*/, '$1'); // one pipeline a loss
    (Number(id) >= 2 ** 20 ? ranOnHalves : ran).add(name);
  }
  const kernels = [...writtenKernels(), ...printedKernels(`${file}.printed.json`)];
  const missing = kernels.filter(({ name }) => !ran.has(name)).map(({ name }) => name);
  const withHalves = kernels.filter(({ code }) => /^alias \w+ = (f32|vec4f);/m.test(code)).map(({ name }) => name);
  const halves = withHalves.filter((name) => ranOnHalves.has(name)).length;
  const count = `${kernels.length - missing.length} of ${kernels.length} kernels ran`;
  return `\n${stage}: ${count}, ${halves} of ${withHalves.length} in their form for 16-bit floats${
    missing.length > 0 ? `\nno test ran ${missing.join(', ')}` : ''
  }\n`;
}
