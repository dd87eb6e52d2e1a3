/** Evaluates the model that a run starts from, in parts between the first steps, so that the visitor does not wait. */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { Evaluation } from '../../src/grpo/generate/validate.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { pipelineOf } from '../../src/grpo/pipeline/settings.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { loraOf } from '../../src/workers/engineSpec.ts';
import type { Session } from '../engine/session.ts';

/** Number of problems that are evaluated between two steps. */
const AT_ONCE = 32;

interface Watch {
  onProgress: (done: number, total: number) => void;
  signal: AbortSignal;
}

/** True if no samples are in flight between steps. */
export const canEvaluateBetween = (config: TrainConfig): boolean =>
  !pipelineOf(config).isAsync && config.rollout.overSampleRate === 0;

/**
 * True if the start weights can be evaluated between steps. This is impossible in four cases. Samples stay in flight between steps: the
 * start weights would continue them. Only adapters are trained: the weights in memory are not the start weights. The result of the
 * evaluation can end the run (`trainer.stopWhen`). Another device generates, which receives only the weights of steps.
 */
export const fitsBetweenSteps = (config: TrainConfig): boolean =>
  canEvaluateBetween(config) &&
  !loraOf(config) &&
  config.trainer.stopWhen === undefined &&
  config.trainer.placement !== 'split';

/** An evaluation of the start weights in progress. */
export class StartEvaluation {
  readonly #session: Session;
  readonly #weights: TensorMap;
  readonly #evaluation: Evaluation;

  private constructor(session: Session, weights: TensorMap, evaluation: Evaluation) {
    [this.#session, this.#weights, this.#evaluation] = [session, weights, evaluation];
  }

  /**
   * Starts the evaluation. Returns undefined if the trainer must evaluate before the first step, because `fitsBetweenSteps` is false or the
   * start weights are not in memory.
   */
  static async begin(session: Session, config: TrainConfig, watch: Watch): Promise<StartEvaluation | undefined> {
    const { weights } = session.model;
    if (!(weights instanceof Map) || !fitsBetweenSteps(config)) return undefined;
    const { engine, task } = session;
    const options = { greedy: true, globalStep: 0, ...watch };
    return new StartEvaluation(
      session,
      weights as TensorMap,
      await Evaluation.begin({ config, engine, task }, options),
    );
  }

  /** Metrics of the complete evaluation, in the trainer's format, and its sampled answers; undefined while problems remain. */
  get result(): { metrics: Metrics; samples: Sample[] } | undefined {
    if (!this.#evaluation.isDone) return undefined;
    const { metrics, samples } = this.#evaluation.result();
    return { metrics: { 'training/global_step': 0, ...metrics }, samples };
  }

  /** Answers the next problems, or all, with the start weights. Afterwards the weights of `step` are restored, bit for bit. */
  async next(step: number, count = AT_ONCE): Promise<void> {
    const { model, rollout } = this.#session.engine;
    const { exportWeights } = model;
    const trained = await exportWeights();
    model.exportWeights = () => Promise.resolve(trained); // other callers mean the run's weights
    this.#session.evaluatesStart = true;
    try {
      await model.importWeights(this.#weights);
      await rollout.resetCache(0);
      await this.#evaluation.next(count);
    } finally {
      await model.importWeights(trained);
      await rollout.resetCache(step);
      model.exportWeights = exportWeights;
      this.#session.evaluatesStart = false;
    }
  }
}
