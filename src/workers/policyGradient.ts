/** The policy losses of `src/grpo` on the CPU, in the form in which an engine without a fused loss asks for them. */

import { policyLoss } from '../grpo/losses/index.ts';
import { entropyGradient } from '../model/policyStage.ts';
import type { PolicyGradient } from '../model/tfjs/engine.ts';

/** d loss / d log-prob and d loss / d entropy of every entry, [E]; float64 inside. */
export const policyGradient: PolicyGradient = (spec, inputs, logp, { seqStart }) => {
  const { oldLogProbs: oldLogp, refLogProbs: refLogp, ...rest } = inputs;
  const { grad } = policyLoss(spec, { logp, oldLogp, seqStart, ...(refLogp && { refLogp }), ...rest });
  return { dLogProbs: Float32Array.from(grad), dEntropy: entropyGradient(spec, inputs) };
};
