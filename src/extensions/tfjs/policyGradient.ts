/** The policy losses of `src/grpo` on the CPU, as the callback of an engine without a fused loss. */

import { rowGradients } from '../../grpo/losses/rowGradients.ts';
import type { PolicyGradient } from './engine.ts';

/** Computes a policy loss and its gradient by log-prob and entropy. */
export const policyGradient: PolicyGradient = (spec, inputs, logProbs, { seqStart }) =>
  rowGradients(spec, { ...inputs, logProbs, seqStart });
