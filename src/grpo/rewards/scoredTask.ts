/** A task as training scores it. */

import { withRewardWeights } from '../../tasks/rewards/combine.ts';
import type { Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../config/types.ts';
import { hasRewardModels } from '../generate/options.ts';
import { type Rules, withRules } from '../live.ts';
import type { TrainerEngine } from '../types.ts';

/** A task with the weights and the rewards by models that the config adds. */
export class ScoredTask {
  readonly #own: Task;
  readonly #config: TrainConfig;
  readonly #engine: TrainerEngine;
  #scored: Promise<Task> | undefined;

  /** @param config the run's, whose reward settings do not change */
  constructor(own: Task, config: TrainConfig, engine: TrainerEngine) {
    [this.#own, this.#config, this.#engine] = [own, config, engine];
  }

  /** Loads the models' code, if there are models. Throws InputError. */
  async load(): Promise<void> {
    if (hasRewardModels(this.#config.reward)) await this.#byModels();
  }

  /** Throws InputError if models score and `rules` has a reward. */
  under(rules: Rules): Task {
    const task = withRules(this.#own, rules, this.#config);
    if (!hasRewardModels(this.#config.reward)) return withRewardWeights(task, this.#config.reward.weights);
    return { ...task, reward: async (sample) => (await this.#byModels()).reward(sample) };
  }

  #byModels(): Promise<Task> {
    return (this.#scored ??= import('./modelRewards.ts').then((models) =>
      models.withModelRewards(this.#own, this.#config, this.#engine),
    ));
  }
}
