import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { WgslReflect } from 'wgsl_reflect/wgsl_reflect.module.js';
import { type Declarations, defineKernel, readDeclarations } from '../../src/gpu/kernel.ts';
import { rmsnormKernel } from '../../src/gpu/ops/rmsnorm.ts';
import { printedKernels } from '../printedKernels.ts';

test('bindings are parsed from the WGSL, whatever its comments and order', () => {
  const code = `
    struct Params { n: u32, eps: f32 }
    override WG: u32 = 64u; // threads
    // @group(0) @binding(7) var<storage, read> old: array<f32>;
    @group(0) @binding(1) var<storage, read_write> y: array<f32>;
    @group(0) @binding(0) var<storage,read> x: array<f32>;
    @group(0) @binding(2) var<uniform> params: Params;`;
  const kernel = defineKernel({ name: 'demo', code, read: ['x'], write: ['y'], params: { n: 'u32', eps: 'f32' } });
  expect([...kernel.bindings].sort((a, b) => a.binding - b.binding)).toEqual([
    { name: 'x', binding: 0, access: 'read' },
    { name: 'y', binding: 1, access: 'read_write' },
  ]);
  expect([kernel.paramsBinding, kernel.paramsBytes]).toEqual([2, 8]);
});

test.each([
  [{ read: ['x'] }, 'the WGSL declares "weight" but the wrapper does not bind it.'],
  [
    { read: ['x', 'weight', 'bias'] },
    'the wrapper binds "bias" but the WGSL declares only "x", "weight", "y", "rstd".',
  ],
  [{ read: ['x', 'weight', 'rstd'], write: ['y'] }, '"rstd" is read_write in the WGSL but read in the wrapper.'],
  [
    { params: { C: 'u32', N: 'u32', eps: 'f32' } },
    'struct Params is {N: u32, C: u32, eps: f32} in the WGSL but {C: u32, N: u32, eps: f32} in the wrapper.',
  ],
  [
    { params: { N: 'u32', C: 'u32', eps: 'u32' } },
    'struct Params is {N: u32, C: u32, eps: f32} in the WGSL but {N: u32, C: u32, eps: u32} in the wrapper.',
  ],
  [
    { code: rmsnormKernel.code.replaceAll('params', 'sizes').replace('var<uniform> sizes: Params;', '') },
    'struct Params is {} in the WGSL but {N: u32, C: u32, eps: f32} in the wrapper.',
  ],
] as const)('a wrapper that drifted from its WGSL is refused: %#', (change, message) => {
  expect(() => defineKernel({ ...rmsnormKernel, ...change })).toThrow(`kernels/rmsnorm.wgsl: ${message}`);
});

/** Every variant of the kernels that code generates, including variants that no adapter here runs. */
const PRINTED = printedKernels([4, 16, 20, 64, 128]);

test.each(['matmul_plain_4x4', 'matmul_workgroup_4x4', 'matmul_packed_plain_2x8', 'attention_d16'])(
  '%s is printed as test/fixtures/tiles has it, for a reader',
  (name) => expect(PRINTED.get(name)).toMatchFileSnapshot(`../fixtures/tiles/${name}.wgsl`),
);

const files = readdirSync('kernels').filter((f) => f.endsWith('.wgsl'));
const written = new Map(files.map((file) => [file.slice(0, -'.wgsl'.length), readFileSync(`kernels/${file}`, 'utf8')]));

describe('every kernel', () => {
  const ops = readdirSync('src/gpu/ops').map((f) => readFileSync(`src/gpu/ops/${f}`, 'utf8'));
  const tests = readdirSync('test/gpu').filter((f) => f.endsWith('.test.ts'));

  test.each([...written.keys()])(
    '%s is imported by a wrapper of that name and has a test file named after it',
    (stem) => {
      expect(ops.filter((text) => text.includes(`kernels/${stem}.wgsl?raw'`)).length, 'wrappers').toBe(1);
      expect(ops.join('\n'), 'name').toMatch(new RegExp(`['"\`]${stem}['"\`]`));
      expect(
        tests.filter((file) => file.includes(stem.replace(/_bwd_k?[qv]$/, '_bwd'))).length,
        'tests',
      ).toBeGreaterThan(0);
    },
  );

  test.each([...written, ...PRINTED])('the header of %s names a test, and a reference that exists', (name, code) => {
    const header = code.slice(code.indexOf('// Checked'), code.indexOf('\n\n', code.indexOf('// Checked')));
    const [first] = header.match(/test\/gpu\/\w+\.test\.ts/) ?? [];
    expect(existsSync(first ?? ''), header).toBe(true);
    if (tests.includes(`${name}.test.ts`)) expect(header).toContain(`test/gpu/${name}.test.ts`);
    for (const [, called, file] of header.matchAll(/(\w+)\(\)(?: in (\S+\.ts))?/g))
      expect(readFileSync(file, 'utf8'), header).toMatch(new RegExp(`(function|const) ${called}\\b`));
  });

  test.each([...written, ...PRINTED])('%s declares what a full WGSL parser finds in it', (_, code) => {
    expect(readDeclarations(code)).toEqual(reflected(code));
  });

  test.each([...written, ...PRINTED])('%s has one entry point, main, and a header', (_, code) => {
    expect(code.match(/@compute/g)).toHaveLength(1);
    expect(code).toMatch(/^fn main\(/m);
    expect(code.replace(/^(?:(?:enable|diagnostic)\b.*\s+)+/, '')).toMatch(/^\/\/ \S[\s\S]*Grid[\s\S]*Checked/);
    expect([...code].every((c) => c.charCodeAt(0) < 128)).toBe(true);
  });
});

/** Like `readDeclarations`, but reads a syntax tree of the kernel with wgsl_reflect. */
function reflected(code: string): Declarations {
  const wgsl = new WgslReflect(code);
  const storage = wgsl.storage.map(({ name, binding, access, group }) => {
    expect(group).toBe(0);
    return { name, binding, access: access as 'read' | 'read_write' };
  });
  expect(wgsl.uniforms).toHaveLength(1);
  const members = (wgsl.uniforms[0].type as unknown as { members: { name: string; type: { name: string } }[] }).members;
  const params = members.map(({ name, type }) => ({ name, type: type.name }));
  return { storage, uniformBinding: wgsl.uniforms[0].binding, params };
}
