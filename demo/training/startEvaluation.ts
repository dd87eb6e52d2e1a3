/** The evaluation of the model that a run starts from, in parts between the first steps, so that the visitor does not wait for it. */

import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { Evaluation } from '../../src/grpo/generate/validate.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { loraOf } from '../../src/workers/engineSpec.ts';
import type { Session } from '../engine/session.ts';

/** Problems between two steps. */
const AT_ONCE = 32;

interface Watch {
  onProgress: (done: number, total: number) => void;
  signal: AbortSignal;
}

/**
 * True if the start weights can be evaluated between steps. Samples that stay in flight between steps would be drawn by the start
 * weights, adapters have other weights than those in memory, and the outcome may end the run (`trainer.stopWhen`).
 */
export const fitsBetweenSteps = (config: TrainConfig): boolean =>
  config.trainer.pipeline === 'on-policy' &&
  config.rollout.overSampleRate === 0 &&
  !loraOf(config) &&
  config.trainer.stopWhen === undefined;

export class StartEvaluation {
  readonly #session: Session;
  readonly #weights: TensorMap;
  readonly #evaluation: Evaluation;

  private constructor(session: Session, weights: TensorMap, evaluation: Evaluation) {
    [this.#session, this.#weights, this.#evaluation] = [session, weights, evaluation];
  }

  /** Returns undefined if the trainer must evaluate before the first step: see `fitsBetweenSteps`, or the start weights are not in memory. */
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

  /** Of the whole, as the trainer gives them before the first step; undefined = there are problems left. */
  get metrics(): Metrics | undefined {
    if (!this.#evaluation.isDone) return undefined;
    return { 'training/global_step': 0, ...this.#evaluation.result().metrics };
  }

  /** Answers the next problems, or all, by the start weights; those of `step` are in place again afterwards, bit for bit. */
  async next(step: number, count = AT_ONCE): Promise<void> {
    const { model, rollout } = this.#session.engine;
    const { exportWeights } = model;
    const trained = await exportWeights();
    model.exportWeights = () => Promise.resolve(trained); // whoever asks meanwhile means the run's
    try {
      await model.importWeights(this.#weights);
      await rollout.resetCache(0);
      await this.#evaluation.next(count);
    } finally {
      await model.importWeights(trained);
      await rollout.resetCache(step);
      model.exportWeights = exportWeights;
    }
  }
}
