/** Checkpoint functions shared by the trainer and the Learner. */

import { NotFiniteError } from '../errors.ts';
import type { ModelEngine, TensorMap } from '../model/engine.ts';
import type { TrainConfig } from './config/types.ts';
import type { InFlight } from './generate/samples.ts';
import { bringWeights } from './pipeline/sharedWeights.ts';
import type { Checkpoint, TrainerEngine, TrainerState } from './types.ts';

/**
 * Returns the weights after a step. Throws NotFiniteError if a weight is not finite, because no run can resume from
 * such weights.
 */
export async function finiteWeights(model: ModelEngine, step: number, lr: number | 'auto'): Promise<TensorMap> {
  const weights = await model.exportWeights();
  for (const [name, { data }] of weights)
    if (!data.every(Number.isFinite))
      throw new NotFiniteError(
        step,
        `After step ${step} the weights are not finite ("${name}"). Lower actor.optim.lr (${lr}).`,
      );
  return weights;
}

/** Reads weights and optimizer moments from the engine. Throws NotFiniteError if the weights are not finite. */
export async function exportCheckpoint(
  { model, reference }: TrainerEngine,
  { trainer, actor }: TrainConfig,
  state: TrainerState,
): Promise<Checkpoint> {
  const refreshed = trainer.refUpdateFreq > 0 ? reference : undefined;
  const weights = await finiteWeights(model, state.step, actor.optim.lr);
  const optimizer = await model.exportOptimizer();
  return { state, weights, optimizer, ...(refreshed && { reference: await refreshed.exportWeights() }) };
}

/** Writes weights and optimizer moments to the engine. */
export async function importCheckpoint(engine: TrainerEngine, checkpoint: Checkpoint): Promise<void> {
  const { state, weights, optimizer, reference } = checkpoint;
  await engine.model.importWeights(weights);
  await engine.model.importOptimizer(optimizer);
  if (reference) await engine.reference?.importWeights(reference);
  await Promise.all([bringWeights(engine, state.step), engine.judge?.resetCache()]);
}

/** True if a step's checkpoint is due. @param savedAt time of the last save, by performance.now() */
export function isSaveDue({ saveFreq, saveMinutes }: TrainConfig['trainer'], step: number, savedAt: number): boolean {
  const isLate = saveMinutes > 0 && performance.now() - savedAt >= saveMinutes * 60_000;
  return isLate || (saveFreq > 0 && step % saveFreq === 0);
}

/**
 * Aborts the groups in flight, and clears the gradients, cache and counts that a failed step or evaluation has left on
 * the engine.
 */
export async function abandon({ model, rollout }: TrainerEngine, inFlight: InFlight): Promise<void> {
  const forget = [
    () => inFlight.close(),
    () => model.zeroGrad(),
    () => rollout.resetCache(),
    () => rollout.takeStats(),
  ];
  // Errors of the calls in `forget` are ignored, because these also reject if the device is lost.
  for (const one of forget) await Promise.allSettled([(async () => one())()]);
}
