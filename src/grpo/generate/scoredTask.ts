/** A task with the rewards that training uses, including reward models and their weights. */

import { extensionPoint } from '../../extensionPoint.ts';
import { withRewardWeights } from '../../tasks/rewards/combine.ts';
import type { Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../config/types.ts';
import { hasRewardModels } from './options.ts';
import { type Rules, withRules } from '../live.ts';
import type { TrainerEngine } from '../types.ts';

/** Adds the scores of the config's reward models to a task. Rejects with InputError. */
export const modelRewards =
  extensionPoint<(own: Task, config: TrainConfig, engine: TrainerEngine) => Promise<Task>>('Rewards by models');

/** A task with the reward weights and reward models of the config. */
export class ScoredTask {
  readonly #own: Task;
  readonly #config: TrainConfig;
  readonly #engine: TrainerEngine;
  #scored: Promise<Task> | undefined;

  /** @param config config of the run; its reward settings must not change afterwards */
  constructor(own: Task, config: TrainConfig, engine: TrainerEngine) {
    [this.#own, this.#config, this.#engine] = [own, config, engine];
  }

  /** Loads the code of the reward models, if the config has any. Throws InputError. */
  async load(): Promise<void> {
    if (hasRewardModels(this.#config.reward)) await this.#byModels();
  }

  /**
   * Returns the task with `rules` applied. Throws InputError if `rules` replaces the reward and reward models score the
   * run.
   */
  under(rules: Rules): Task {
    const task = withRules(this.#own, rules, this.#config);
    if (!hasRewardModels(this.#config.reward)) return withRewardWeights(task, this.#config.reward.weights);
    return { ...task, reward: async (sample) => (await this.#byModels()).reward(sample) };
  }

  #byModels(): Promise<Task> {
    return (this.#scored ??= modelRewards.get()(this.#own, this.#config, this.#engine));
  }
}
