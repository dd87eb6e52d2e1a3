/** Second half of a training step, after generation: computes advantages from samples and updates the weights. */

import type { CustomAdvantage } from '../advantages/index.ts';
import type { TrainConfig } from '../config/types.ts';
import { correctionSettings } from '../correction/settings.ts';
import { wrongInputs, wrongResults } from '../health.ts';
import type { AsyncCustomLoss } from '../losses/types.ts';
import type { PolicyLoss } from '../losses/index.ts';
import type { StepTimer } from '../stepMetrics.ts';
import type { StepInputs, TrainerEngine, TrainerState } from '../types.ts';
import { checkTokens, type Sample } from './batch.ts';
import { adaptKl, refreshReference } from './controllers.ts';
import type { AccumulatedMiniBatch } from './policyGradient.ts';
import { rowTokens } from './rows.ts';
import { PolicyUpdater, type UpdateResult } from './updater.ts';

export interface PolicyStepOptions {
  engine: TrainerEngine;
  /** Custom advantage estimator that replaces the configured one. */
  advantage?: CustomAdvantage | undefined;
  /** True to keep the data that `StepInputs.updated` needs. Default: false. */
  inspect?: boolean | undefined;
  /**
   * True if the caller chooses how many groups and samples a step has: each mini-batch then averages over its own
   * number of them.
   */
  isOwnSize?: boolean | undefined;
  /** Returns the scores of greedy answers to the samples' prompts, for ReMax. */
  baselines(samples: Sample[], step: number): Promise<number[]>;
  /** Called before the weights change; resolves once rollout no longer reads the weights. */
  pause(): Promise<void>;
  /** Called while the GPU computes an update. */
  whileUpdating(): unknown;
}

/** Result of an update. */
export interface PolicyUpdate extends UpdateResult {
  /** Describes a number that is not finite; undefined if all are finite. */
  wrong: string | undefined;
  updated: Pick<StepInputs, 'updated'>;
}

/** Computes the token inputs of a step, updates the policy, and adapts coefficients from step to step. */
export class PolicyStep {
  /** Counters and coefficients that checkpoints store. */
  state: Pick<TrainerState, 'updates' | 'klCoef' | 'entropy' | 'roleBaselines'> = { updates: 0 };
  readonly #options: PolicyStepOptions;
  #config: TrainConfig;
  #updater: PolicyUpdater;

  constructor(options: PolicyStepOptions, config: TrainConfig, loss?: AsyncCustomLoss | PolicyLoss) {
    this.#options = options;
    this.#config = config;
    this.#updater = new PolicyUpdater(config, options.engine, loss, options.isOwnSize);
  }

  /** Replaces the config or the loss from now on. */
  use(config: TrainConfig, loss?: AsyncCustomLoss | PolicyLoss): void {
    this.#config = config;
    this.#updater = new PolicyUpdater(config, this.#options.engine, loss, this.#options.isOwnSize);
  }

  /** Computes log-probs and baselines if a setting needs them, and the update's inputs for each token. */
  async inputs(samples: Sample[], step: number, timer: StepTimer): Promise<StepInputs> {
    const { engine, advantage, baselines: baselinesOf } = this.#options;
    const updater = this.#updater;
    checkTokens(samples, engine.model.config.vocabSize);
    const refLogProbs = await timer.time('ref', () => updater.refLogProbs(samples));
    const bypass = correctionSettings(this.#config).bypassMode;
    const oldLogProbs = bypass ? undefined : await timer.time('old_log_prob', () => updater.oldLogProbs(samples));
    const remax = this.#config.algorithm.advEstimator === 'remax';
    const baselines = remax ? await baselinesOf(samples, step) : undefined;
    const { klCoef, roleBaselines } = this.state;
    const extras = { refLogProbs, oldLogProbs, baselines, klCoef, roleBaselines, advantage };
    const ownSize = this.#options.isOwnSize && { isOwnSize: true as const };
    return { tokens: rowTokens(this.#config, samples, extras), extras, ...ownSize };
  }

  /** Updates the policy, unless an input contains a number that is not finite. */
  async update(samples: Sample[], { tokens }: StepInputs, step: number, timer: StepTimer): Promise<PolicyUpdate> {
    const updater = this.#updater; // `use` can replace `#updater` before the next step
    const done: AccumulatedMiniBatch[] = [];
    const updated = this.#options.inspect ? { updated: () => updater.updatedTokens(samples, done) } : {};
    const wrong = wrongInputs(samples, tokens);
    if (wrong) return { metrics: {}, updates: 0, trainedTokens: 0, entropy: this.state.entropy, wrong, updated };
    const result = await timer.time('update_actor', async () => {
      await this.#options.pause();
      const updating = updater.update(
        samples,
        tokens,
        { ...this.state, step: step - 1 },
        this.#options.inspect ? done : undefined,
      );
      this.#options.whileUpdating();
      return updating;
    });
    return { ...result, wrong: wrongResults(result), updated };
  }

  /** Refreshes the reference if that is due. Adapts the coefficients, unless a number of the step is not finite. */
  async adapt(step: number, samples: Sample[], { tokens }: StepInputs, update: PolicyUpdate): Promise<void> {
    await refreshReference(this.#config, this.#options.engine, step);
    this.state.updates += update.updates;
    if (update.wrong !== undefined) return;
    if (tokens.roleBaselines) this.state.roleBaselines = tokens.roleBaselines;
    adaptKl(this.#config, this.state, tokens.metrics, samples.length);
    if (update.entropy) this.state.entropy = update.entropy;
  }
}
