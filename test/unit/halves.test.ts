import { expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { forHalves } from '../../src/gpu/halves.ts';
import { defineKernel, type Kernel } from '../../src/gpu/kernel.ts';
import { attentionKernels } from '../../src/gpu/ops/attention.ts';
import { headStatsKernel } from '../../src/gpu/ops/head.ts';
import { matmulKernel } from '../../src/gpu/ops/matmul.ts';
import { ropeKvKernel } from '../../src/gpu/ops/rope_kv.ts';
import { stub } from '../stub.ts';

const matmul = matmulKernel('subgroup8_8x8') as Kernel;
const bound = (kernel: Kernel, halves: string[]) =>
  Object.fromEntries(kernel.bindings.map(({ name }) => [name, { half: halves.includes(name) }]));
const forms = (kernel: Kernel, ...halves: string[]) => forHalves(kernel, bound(kernel, halves));

test('without halves a kernel is itself', () => expect(forms(matmul)).toBe(matmul));

test('the named element types, and no other line, become f16', () => {
  const { code, id } = forms(matmul, 'a', 'y');
  expect(code).toBe(
    `enable f16;\n${matmul.code}`
      .replace('alias A = f32;', 'alias A = f16;')
      .replace('alias Y = f32;', 'alias Y = f16;'),
  );
  expect(code).toContain('alias B = f32;');
  expect(id).not.toBe(matmul.id);
});

test('four values at a time become vec4h', () => {
  const gpu = stub<Gpu>({ adapter: { isSoftware: true, subgroupSize: 8, subgroupMaxSize: 8 } });
  const [forward] = attentionKernels(gpu, 24);
  expect(forms(forward, 'q', 'kv', 'out').code).toContain('alias Act = vec4h;');
});

test('the 16-bit form of a kernel is created only once', () => expect(forms(matmul, 'b')).toBe(forms(matmul, 'b')));

test('16-bit arrays that a kernel cannot use, or not alone, are refused', () => {
  expect(() => forms(headStatsKernel as Kernel, 'logits')).toThrow(
    'kernels/head_stats.wgsl: "logits" is bound to halves, but its elements are "f32".',
  );
  expect(() => forms(ropeKvKernel as Kernel, 'qkv', 'q')).toThrow(
    'kernels/rope_kv.wgsl: "kv" and another buffer of Act must both hold halves, or neither.',
  );
});

test('bindings whose names share a prefix are distinguished', () => {
  const code = `
    alias Act = f32;
    @group(0) @binding(0) var<storage, read> dx: array<f32>;
    @group(0) @binding(1) var<storage, read_write> x: array<Act>;
    struct Params { n: u32 }
    @group(0) @binding(2) var<uniform> params: Params;`;
  const kernel = defineKernel({ name: 'demo', code, read: ['dx'], write: ['x'], params: { n: 'u32' } }) as Kernel;
  expect(forms(kernel, 'x').code).toContain('alias Act = f16;');
  expect(() => forms(kernel, 'dx')).toThrow('kernels/demo.wgsl: "dx" is bound to halves, but its elements are "f32".');
});
