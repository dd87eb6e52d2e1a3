/** Checks that apply to the saved state of every optimizer. */

import { InputError } from '../../errors.ts';
import { expectFinite } from '../checkpoint/open.ts';
import type { TensorMap } from '../engine.ts';

/**
 * Returns the number of updates in a saved state. Throws InputError, whose message starts with `source`, for an invalid
 * state.
 */
export function savedSteps(tensors: TensorMap, source: string): number {
  const step = tensors.get('step')?.data;
  // Float32, in which the number is stored, counts exactly up to 2^24.
  if (step?.length !== 1 || !Number.isInteger(step[0]) || step[0] < 0 || step[0] > 2 ** 24) {
    const found = step ? `the "step" ${step.length === 1 ? step[0] : `of ${step.length} values`}` : 'no "step"';
    throw new InputError(
      `${source} has ${found}; allowed: a whole number of updates. It is damaged: use another checkpoint.`,
    );
  }
  expectFinite(tensors, source);
  for (const [name, { data }] of tensors) {
    const negative = name.endsWith('.exp_avg_sq') ? data.findIndex((value) => value < 0) : -1;
    if (negative >= 0)
      throw new InputError(
        `${source}: "${name}" holds ${data[negative]} at element ${negative}, but a mean of squares is never negative. It is ` +
          'damaged: use another checkpoint.',
      );
  }
  return step[0];
}
