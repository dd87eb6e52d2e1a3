/** The policy losses of `src/grpo`, computed on the CPU for an engine that does not compute them on the GPU. */

import { rowGradients } from '../../grpo/losses/rowGradients.ts';
import type { PolicyGradient } from './engine.ts';

/** Returns the derivatives of a policy loss with respect to log-probs and entropies. */
export const policyGradient: PolicyGradient = (spec, inputs, logProbs, { seqStart }) =>
  rowGradients(spec, { ...inputs, logProbs, seqStart });
