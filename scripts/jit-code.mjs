// Counts the instructions that SwiftShader compiles a kernel to, by kind, and those without effect. Linux on x86-64, with objdump
// (binutils). Counts all bytes of a kernel's code, including a few between its routines.
//   npm run -s webgrpo -- verify --kernels DIR    # prints those that no file in kernels/ has
//   node scripts/jit-code.mjs DIR/matmul_subgroup4_32x16.wgsl [more kernels]
import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, readSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { create, globals } from 'webgpu';
import { exitOnSetupError } from './lib/say.mjs';
import { setup } from './setup.mjs';

/**
 * @param {string} line
 * @returns {never}
 */
function fail(line) {
  console.error(line);
  process.exit(1);
}

const files = process.argv.slice(2);
if (files.length === 0) fail('No kernel was named. Say which: node scripts/jit-code.mjs kernels/swiglu.wgsl');
try {
  Object.assign(process.env, setup({ adapter: true }));
  execFileSync('objdump', ['--version']);
} catch (error) {
  if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
    fail('objdump was not found. Install binutils.');
  exitOnSetupError(error);
}
Object.assign(globalThis, globals);
/** Exported so that it stays reachable: Dawn crashes if this object is collected. */
export const dawn = create([]);

/**
 * Returns [start, end] of each memory range with code that SwiftShader has compiled so far.
 * @returns {string[][]}
 */
function compiled() {
  const lines = readFileSync('/proc/self/maps', 'utf8').split('\n');
  const code = lines.filter((line) => line.includes('swiftshader_jit') && line.includes('r-x'));
  return code.flatMap((line) => {
    const match = /^(\w+)-(\w+)/.exec(line);
    return match ? [match.slice(1, 3)] : [];
  });
}

/** @param {string[]} region */
function disassemble([start, end]) {
  const bytes = Buffer.alloc(parseInt(end, 16) - parseInt(start, 16));
  const memory = openSync('/proc/self/mem', 'r');
  readSync(memory, bytes, 0, bytes.length, parseInt(start, 16));
  closeSync(memory);
  const folder = mkdtempSync(join(tmpdir(), 'jit-'));
  try {
    const file = join(folder, 'code');
    writeFileSync(file, bytes);
    const flags = ['-D', '-b', 'binary', '-m', 'i386:x86-64', '-M', 'intel', '--no-show-raw-insn', file];
    const text = execFileSync('objdump', flags, { maxBuffer: 1 << 28 }).toString();
    return text.split('\n').flatMap((line) => line.match(/^\s*\w+:\s+(.+?)\s*$/)?.[1] ?? []);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * Returns the kind of an instruction: loads, stores and copies of whole registers by name, the rest by mnemonic.
 * @param {string} instruction
 */
function kindOf(instruction) {
  const [name, operands = ''] = instruction.split(/\s+(.*)/);
  if (name !== 'movups') return operands.includes('PTR') ? `${name} (memory)` : name;
  if (operands.startsWith('XMMWORD')) return 'store';
  return operands.includes('PTR') ? 'load' : 'copy';
}

/**
 * True if a register is written back to the place that it was just read from.
 * @param {string} instruction
 * @param {string | undefined} before
 */
const isIdle = (instruction, before) => {
  const [, register, place] = before?.match(/^movups (xmm\d+),(XMMWORD PTR .+)$/) ?? [];
  return register !== undefined && instruction === `movups ${place},${register}`;
};

const adapter = await dawn.requestAdapter();
const found = adapter ? `${adapter.info.device} ${adapter.info.description}` : 'none';
if (!adapter || !/swiftshader/i.test(found))
  fail(`This reads SwiftShader's code, but the adapter is ${found}. Set VK_ICD_FILENAMES.`);
const device = await adapter.requestDevice({ requiredFeatures: ['subgroups'] });
const pipelines = []; // kept, so that the memory of one is not reused for the next
for (const file of files) {
  const before = new Set(compiled().map(String));
  const started = performance.now();
  const module = device.createShaderModule({ code: readFileSync(file, 'utf8') });
  pipelines.push(await device.createComputePipelineAsync({ layout: 'auto', compute: { module } }));
  const seconds = (performance.now() - started) / 1000;
  const code = compiled()
    .filter((region) => !before.has(String(region)))
    .flatMap(disassemble)
    .map((instruction) => instruction.replace(/\s+/, ' '));
  if (code.length === 0) fail(`${file}: nothing new was compiled; is it named twice?`);
  const counts = new Map();
  for (const kind of code.map(kindOf)) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const idle = code.filter((instruction, i) => isIdle(instruction, code[i - 1])).length;
  const most = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12);
  console.log(
    `${file}: ${code.length} instructions, ${idle} of them store what was just loaded; ${seconds.toFixed(1)} s`,
  );
  for (const [kind, n] of most) console.log(`  ${String(n).padStart(8)}  ${kind}`);
}
process.exit(0);
