/** What is common to the checkpoints of a trainer and of a Learner. */

import { NotFiniteError } from '../errors.ts';
import type { ModelEngine, TensorMap } from '../model/engine.ts';

/** The weights after a step. Throws NotFiniteError if they are not finite: no run can resume from them. */
export async function finiteWeights(model: ModelEngine, step: number, lr: number): Promise<TensorMap> {
  const weights = await model.exportWeights();
  for (const [name, { data }] of weights)
    if (!data.every(Number.isFinite))
      throw new NotFiniteError(
        step,
        `After step ${step} the weights are not finite ("${name}"); lower actor.optim.lr (${lr}).`,
      );
  return weights;
}
