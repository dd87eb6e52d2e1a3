/**
 * Every kernel's text through this adapter's shader compiler: also shapes for subgroups that it does not have, which no other
 * test runs here. Wherever subgroups are offered, of whatever size, Tint reads all of them (SwiftShader's are of 4).
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

/** A compiler without the feature refuses the first line, `enable subgroups;`, and reads no further. */
const canRead = (code: string) => device.features.has('subgroups') || !code.startsWith('enable subgroups;');

describe.each([...Object.entries(written), ...printedKernels([4, 20, 48, 64, 96, 128])])('%s', (_, code) => {
  test.skipIf(!canRead(code))('compiles', async () => expect(await errorsOf(code)).toEqual([]));
});

test('what does not compile is reported', async () => {
  const [error] = await errorsOf('fn main() { let x: u32 = 1.5; }');
  expect(error).toMatch(/^1: /);
});
