/** Tests attention backward: the generic kernels, and every form that is generated for one head dim and runs on this adapter. */
import { describe } from 'vitest';
import { type AttentionForm, attentionForms } from '../../src/gpu/ops/attention.ts';
import { testAttentionBwd, testAttentionBwdFold } from './attentionBackward.ts';
import { attentionCases, GENERIC_CASES, isTested, PRINTED_HEAD_DIMS } from './attentionCases.ts';
import { testGpu } from './gpu.ts';

const adapter = await testGpu();

/**
 * False for the kernels of hardware whose compilation takes lavapipe's LLVM too long: a minute with head dim 96, more than 16 minutes with
 * 128. SwiftShader tests them.
 */
const compilesSoon = (form: AttentionForm, D: number): boolean =>
  form !== 'block' || D < 96 || !(adapter.adapter.isSoftware && adapter.adapter.subgroupSize === 8);

describe('attention_bwd_q and attention_bwd_kv', () => {
  testAttentionBwd(GENERIC_CASES, 'tiled');
  testAttentionBwdFold(6, 'tiled');
});

for (const D of PRINTED_HEAD_DIMS)
  // `block1` is for decoding only.
  for (const form of attentionForms(adapter, D).filter(
    (form) => form !== 'block1' && isTested(form, D) && compilesSoon(form, D),
  ))
    describe(`attention_bwd_q and attention_bwd_kv, ${form}, head dim ${D}`, () => {
      testAttentionBwd(attentionCases(D), form);
      testAttentionBwdFold(D, form);
    });
