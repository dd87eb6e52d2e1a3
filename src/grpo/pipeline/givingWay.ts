/**
 * Lets rollout run between the micro-batches of training on one device. The device executes work in the order of
 * submission.
 */

import { samplesStarted } from '../../rollout/agent/yield.ts';
import type { TrainerEngine } from '../types.ts';
import type { GradientModel } from '../update/policyGradient.ts';
import { checkpointEngineOf } from './sharedWeights.ts';

/**
 * Returns the engine's model. If rollout samples from a copy of the weights on the same device, each micro-batch first
 * lets rollout run, so that rollout calls its tools early and awaits them during training. A micro-batch waits until no
 * sequence is left to sample, but no longer than the previous micro-batch took, so that training keeps its share of the
 * device. Waiting does not change any result.
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
