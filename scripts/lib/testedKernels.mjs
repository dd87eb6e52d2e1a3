/** Lists the kernels and their test files, and finds kernels that no test ran. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../setup.mjs';

/** Returns the names of kernel files, and the text of each. */
function writtenKernels() {
  const files = readdirSync(join(ROOT, 'kernels')).filter((file) => file.endsWith('.wgsl'));
  return files.map((file) => ({
    name: file.slice(0, -'.wgsl'.length),
    code: readFileSync(join(ROOT, 'kernels', file), 'utf8'),
  }));
}

/**
 * Returns the kernels that are printed by code, as test/gpu/kernelsRun.ts recorded them.
 * @param {string} file
 */
function printedKernels(file) {
  if (!existsSync(file)) return [];
  /** @type {Record<string, string>} */
  const texts = JSON.parse(readFileSync(file, 'utf8'));
  return Object.entries(texts).map(([name, code]) => ({ name, code }));
}

/** Names of test files that cover families of kernels, or properties of many kernels. */
const FAMILIES = ['matmul', 'attention', 'shaderCompiler', 'pack_unpack', 'halfKernels', 'halfModel', 'rowGrid'];

/**
 * Returns the kernels' test files, or those whose names contain one of the words.
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
 * Returns a paragraph about the kernels that a stage of tests did not run. Each line of `file` is the label of a pipeline: the kernel's
 * name, # and its number. src/gpu/halves.ts numbers variants with 16-bit floats from 2^20.
 * @param {string} stage
 * @param {string} file
 */
export function kernelsThatDidNotRun(stage, file) {
  const ran = new Set();
  const ranOnHalves = new Set();
  for (const label of readFileSync(file, 'utf8').trim().split('\n')) {
    const [pipeline, id] = label.split(',')[0].split('#');
    const name = pipeline.replace(/^(policy_loss|policy_stats)_.*/, '$1'); // one pipeline per loss
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
