/** Tests that the checks of `webgrpo verify`, except those of complete models, pass on this adapter. */
import { expect, test } from 'vitest';
import { verifyLossKernels, verifyProducts } from '../../src/extensions/verify/kernels.ts';
import { registerPolicyLoss } from '../../src/extensions/modules/register.ts';
import { POLICY_LOSSES } from '../../src/grpo/losses/index.ts';
import { kernelTexts } from '../../src/extensions/verify/kernelText.ts';
import { chooseMatmul } from '../../src/gpu/ops/matmul.ts';
import { packedKernels } from '../../src/gpu/ops/matmulPacked.ts';
import { attentionKernels } from '../../src/gpu/ops/attention.ts';
import { withGpu } from './gpu.ts';

test('products of every tile and all policy losses hold on this adapter', () =>
  withGpu(async (gpu) => {
    const checks = [await verifyProducts(gpu), ...(await verifyLossKernels(gpu))];
    expect(checks).toHaveLength(1 + Object.keys(POLICY_LOSSES).length);
    expect(checks.filter(({ error, limit }) => !(error <= limit))).toEqual([]);
  }));

test('the text of every kernel that runs here use can be written', () =>
  withGpu((gpu) => {
    const texts = kernelTexts(gpu);
    for (const M of [1, 7, 40, 4000]) expect([...texts.keys()]).toContain(`matmul_${chooseMatmul(gpu, M, 384)}.wgsl`);
    for (const { name, code } of [...packedKernels(gpu), ...[16, 24, 64, 128].flatMap((D) => attentionKernels(gpu, D))])
      expect(texts.get(`${name}.wgsl`)).toBe(code);
    expect(texts.get('rmsnorm.wgsl')).toMatch(/^\/\/ /);
    for (const [file, text] of texts) expect(text.match(/^fn main\(/gm), file).toHaveLength(1);
  }));

test('a loss whose WGSL does not compile is named in a sentence; one without WGSL is left out', () =>
  withGpu(async (gpu) => {
    const row = () => ({ loss: 0, grad: 0 });
    const checked = Object.values(POLICY_LOSSES).filter(({ wgsl }) => wgsl !== undefined).length;
    registerPolicyLoss('by_function', ({ weights }) => ({ dLogProbs: weights }));
    registerPolicyLoss('by_row', { row });
    expect(await verifyLossKernels(gpu)).toHaveLength(checked);
    registerPolicyLoss('typo', { row, wgsl: 'fn rowGrad(t: Token) -> f32 { return -t.advantag; }' });
    await expect(verifyLossKernels(gpu)).rejects.toThrow(/^Policy loss "typo" does not compile: .*line 1 of its WGSL/);
  }));
