import { test } from 'vitest';
import { packPolicyRows, policyLossKernels } from '../../src/gpu/ops/policy_loss.ts';
import { rng } from '../random.ts';
import { recipeSpec } from '../recipeSpec.ts';
import { expectWithin, readRoomy, roomy, U } from './check.ts';
import { withGpu } from './gpu.ts';

const [CLIP_LOW, CLIP_HIGH] = [0.2, 0.3];

/** Term of each recipe's loss that is summed over a sequence. d = logp - oldLogp. */
const TERMS: Record<string, (d: number, advantage: number) => number> = {
  gspo: (d) => d,
  luspo: (d) => d,
  reinforce: (d) => d,
  gmpo: (d, a) => (a > 0 ? Math.min(d, CLIP_HIGH) : a < 0 ? Math.max(d, -CLIP_LOW) : 0),
  vespo: (d) => Math.max(-20, Math.min(20, d)),
};

async function check(lengths: number[], recipe: string): Promise<void> {
  const S = lengths.length;
  const seqStart = lengths.reduce((starts, n) => [...starts, starts[starts.length - 1] + n], [0]);
  const E = seqStart[S];
  const r = rng(E + recipe.length);
  const logp = r.normals(E, 15);
  const oldLogProbs = logp.map((x, e) => x - r.normals(1, e % 3 === 0 ? 15 : 0.3)[0]);
  const advantages = r.normals(E).map((a, e) => (e % 7 === 0 ? 0 : a));
  const mask = Float32Array.from({ length: E }, (_, e) => (e % 5 === 3 ? 0 : 1));
  const [want, size] = [new Float64Array(S * 4), new Float64Array(S * 4)];
  for (let s = 0; s < S; s++)
    for (let e = seqStart[s]; e < seqStart[s + 1]; e++) {
      if (mask[e] === 0) continue;
      const row = [1, TERMS[recipe](logp[e] - oldLogProbs[e], advantages[e]), advantages[e]];
      row.forEach((x, i) => {
        want[s * 4 + i] += x;
        size[s * 4 + i] += Math.abs(x) + (i === 1 ? Math.abs(logp[e] - oldLogProbs[e]) : 0);
      });
    }
  const most = Math.max(...lengths);
  await withGpu(async (gpu) => {
    const stats = roomy(gpu, 'stats', S * 4 + 1); // a multiple of four with its extra space
    const rows = { oldLogProbs, advantages, weights: new Float32Array(E), mask };
    const views = {
      logp: gpu.buffer('logp', logp),
      inputs: gpu.buffer('inputs', packPolicyRows(rows)),
      seqStart: gpu.buffer('seqStart', Uint32Array.from(seqStart)),
      stats,
    };
    const loss = recipeSpec(recipe, { clipRatioLow: CLIP_LOW, clipRatioHigh: CLIP_HIGH });
    const params = { S, ...loss.numbers };
    gpu.dispatch(policyLossKernels(loss).stats!.kernel, views, params, Math.ceil(S / 64));
    // Rounding: the difference of the log-probs, the clip bound, and the sum.
    expectWithin(await readRoomy(gpu, stats, S * 4), want, (i) => (most + 2) * U * size[i]);
  });
}

test.each(Object.keys(TERMS))(
  'sums of samples of every length, empty and masked ones among them, %s',
  async (recipe) => {
    await check([1], recipe);
    await check([3, 0, 64, 1, 131, 7], recipe);
    await check(
      Array.from({ length: 67 }, (_, s) => s % 9),
      recipe,
    );
  },
);
