/**
 * Compiles every kernel's text with this adapter's shader compiler, including kernels for subgroup sizes that the adapter lacks, which no
 * other test compiles here. Tint compiles all of them on any adapter with subgroups, whatever their size (SwiftShader's have 4 threads).
 */
import { describe, expect, test } from 'vitest';
import { printedKernels } from '../printedKernels.ts';
import { testGpu } from './gpu.ts';

const written = import.meta.glob<string>('../../kernels/*.wgsl', { query: '?raw', import: 'default', eager: true });
const { device } = await testGpu();

const errorsOf = async (code: string): Promise<string[]> => {
  device.pushErrorScope('validation');
  const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
  const refused = await device.popErrorScope();
  const errors = messages
    .filter(({ type }) => type === 'error')
    .map(({ lineNum, message }) => `${lineNum}: ${message}`);
  return refused && errors.length === 0 ? [refused.message] : errors;
};

/** True if the compiler accepts subgroups. Otherwise it stops at the first line, `enable subgroups;`. */
const canRead = (code: string) => device.features.has('subgroups') || !code.startsWith('enable subgroups;');

describe.each([...Object.entries(written), ...printedKernels([4, 20, 48, 64, 96, 128])])('%s', (_, code) => {
  test.skipIf(!canRead(code))('compiles', async () => expect(await errorsOf(code)).toEqual([]));
});

test('a compile error is reported', async () => {
  const [error] = await errorsOf('fn main() { let x: u32 = 1.5; }');
  expect(error).toMatch(/^1: /);
});
