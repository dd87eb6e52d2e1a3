/** Tests attention forward: the generic kernel, and every form that is generated for one head dim and runs on this adapter. */
import { describe, expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { attention, type AttentionForm, attentionForms, decodeForm } from '../../src/gpu/ops/attention.ts';
import { attentionCases, GENERIC_CASES, isTested, PRINTED_HEAD_DIMS } from './attentionCases.ts';
import { testAttention } from './attentionSuite.ts';
import { poisoned, testGpu, withGpu } from './gpu.ts';
import { stub } from '../stub.ts';

const adapter = await testGpu();

describe('attention', () => testAttention(GENERIC_CASES, 'tiled'));

/** Form `alone` computes one row per thread. Above head dim 32 `tiled` does so too. */
const formsOf = (D: number): AttentionForm[] =>
  [...attentionForms(adapter, D), ...(D > 32 ? [] : (['alone'] as const))].filter((form) => isTested(form, D));

for (const D of PRINTED_HEAD_DIMS)
  for (const form of formsOf(D))
    describe(`attention, ${form}, head dim ${D}`, () => testAttention(attentionCases(D), form));

test('a head dim that the kernels cannot hold is refused', () =>
  withGpu((gpu) => {
    const v = poisoned(gpu, 'v', 4096);
    const views = { q: v, kv: v, ranges: v, out: v, lse: v };
    expect(() => attention(gpu, { ...views, N: 1, H: 1, K: 1, D: 130 })).toThrow('attention: head_dim is 130. At most');
  }));

test.each([0, 4, 32])('hardware with subgroups of %i lanes gives a row a workgroup', (lanes) => {
  const gpu = stub<Gpu>({ adapter: { isSoftware: false, subgroupSize: lanes, subgroupMaxSize: lanes } });
  expect([attentionForms(gpu, 64)[0], decodeForm(gpu, 64)]).toEqual(['block', 'block1']);
  expect([attentionForms(gpu, 6)[0], decodeForm(gpu, 6)]).toEqual(['tiled', 'alone']); // the generic kernel
});
