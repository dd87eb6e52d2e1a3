/** What `webgrpo verify` looks at, beside whole models, holds here. */
import { expect, test } from 'vitest';
import { verifyLossKernels, verifyProducts } from '../../src/verify/kernels.ts';
import { POLICY_LOSSES } from '../../src/grpo/losses/index.ts';
import { withGpu } from './gpu.ts';

test('products of every tile and all policy losses hold on this adapter', () =>
  withGpu(async (gpu) => {
    const checks = [await verifyProducts(gpu), ...(await verifyLossKernels(gpu))];
    expect(checks).toHaveLength(1 + Object.keys(POLICY_LOSSES).length);
    expect(checks.filter(({ error, limit }) => !(error <= limit))).toEqual([]);
  }));
