/** Training and rollout on one device, which executes work in the order of submission. */

import { samplesStarted } from '../../rollout/agent/yield.ts';
import type { TrainerEngine } from '../types.ts';
import type { GradientModel } from '../update/policyGradient.ts';
import { checkpointEngineOf } from './sharedWeights.ts';

/**
 * The engine's model. Where rollout draws by a copy on the same device, each micro-batch lets it go first, so that its tools are called
 * early and awaited during training: until nothing is left to draw, but no longer than the micro-batch before took, so that training
 * has its share where rollout never rests. No number depends on it.
 */
export function givingWay(engine: Pick<TrainerEngine, 'model' | 'rollout' | 'checkpointEngine'>): GradientModel {
  const { model, rollout } = engine;
  if (checkpointEngineOf(engine).backend !== 'copy') return model;
  let lastMs = 0;
  return {
    name: model.name,
    logProbs: (batch, options) => model.logProbs(batch, options),
    async forwardBackward(batch, loss, options) {
      await samplesStarted();
      await rollout.idle(lastMs);
      const started = performance.now();
      const outputs = await model.forwardBackward(batch, loss, options);
      lastMs = performance.now() - started;
      return outputs;
    },
  };
}
