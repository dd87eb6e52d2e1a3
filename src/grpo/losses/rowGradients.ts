/**
 * Computes gradients of a policy loss from its float64 row, between forward and backward, for engines that do not run
 * the loss's WGSL.
 */

import type { PolicyLossInputs, PolicyLossSpec } from '../../model/engine.ts';
import { entropyGradient } from '../../model/policyStage.ts';
import { computePolicyLoss, type PolicyLoss } from './index.ts';

/**
 * Returns d loss / d log-prob and d loss / d entropy of every entry, [E].
 * @param loss same as in `computePolicyLoss`
 */
export function rowGradients(
  spec: PolicyLossSpec,
  rows: PolicyLossInputs & { logProbs: Float32Array; seqStart: Uint32Array },
  loss?: PolicyLoss,
): { dLogProbs: Float32Array; dEntropy: Float32Array } {
  const { logProbs: logp, oldLogProbs: oldLogp, refLogProbs: refLogp, ...rest } = rows;
  const { grad } = computePolicyLoss(spec, { ...rest, logp, oldLogp, ...(refLogp && { refLogp }) }, loss);
  return { dLogProbs: Float32Array.from(grad), dEntropy: entropyGradient(spec, rows) };
}
