/** A task as training scores it. */

import { withRewardWeights } from '../../tasks/rewards/combine.ts';
import type { Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../config/types.ts';
import { hasRewardModels } from '../generate/options.ts';
import { type Rules, withRules } from '../live.ts';
import type { TrainerEngine } from '../types.ts';

/** A task with the weights and the rewards by models that the config adds. */
export class ScoredTask {
  /** Gets the models' code, where there are any. Throws InputError. */
  readonly load: (() => Promise<Task>) | undefined;
  readonly #own: Task;
  readonly #config: TrainConfig;

  constructor(own: Task, config: TrainConfig, engine: TrainerEngine) {
    [this.#own, this.#config] = [own, config];
    if (!hasRewardModels(config.reward)) return;
    let scored: Promise<Task> | undefined;
    this.load = () =>
      (scored ??= import('./modelRewards.ts').then((models) => models.withModelRewards(own, config, engine)));
  }

  /** Throws InputError if models score and `rules` has a reward. */
  under(rules: Rules): Task {
    const { load } = this;
    const task = withRules(this.#own, rules, this.#config);
    if (!load) return withRewardWeights(task, this.#config.reward.weights);
    return { ...task, reward: async (sample) => (await load()).reward(sample) };
  }
}
