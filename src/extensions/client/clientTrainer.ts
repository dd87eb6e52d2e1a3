/** Trains on the calls of a user's own agent. The agent calls the model through a client and sets a reward, then the trainer steps. */

import { InputError } from '../../errors.ts';
import type { Task } from '../../tasks/task.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { GrpoTrainer } from '../../grpo/trainer.ts';
import type { TrainerEngine, TrainerEvents } from '../../grpo/types.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { TrainingClient } from './client.ts';
import { ClientGroups } from './groups.ts';
import { type ClientLimits, NO_TASK } from './settings.ts';
import type { TrajectoryOptions } from './trajectory.ts';

/** Options of a ClientTrainer, including its event callbacks. */
export interface ClientTrainerOptions extends TrainerEvents {
  /** Result of `resolveTrainConfig`. */
  config: TrainConfig;
  /** A local or a remote engine. */
  engine: TrainerEngine;
  /** Task whose held-out problems `trainer.validate()` uses. Default: none. */
  task?: Task;
  /** Limits on open and waiting episodes. */
  limits?: ClientLimits;
  /** Runs a step's work while no other caller uses the model. Default: runs it immediately. */
  alone?<T>(work: () => Promise<T>): Promise<T>;
}

/** Selects the groups on which a step trains. */
export interface ClientStepOptions {
  /** Number of complete groups to wait for and train on; 'all' = those that are complete now. Default: data.trainBatchSize. */
  groups?: number | 'all';
  /** Cancels the wait: the step rejects and takes no groups. */
  signal?: AbortSignal;
}

/** Trainer of `Learner.client` and `webgrpo serve`: groups the episodes of clients and runs GrpoTrainer's step on complete groups. */
export class ClientTrainer {
  /** The trainer, for checkpoints, evaluations and state. */
  readonly trainer: GrpoTrainer;
  /** The open and waiting episodes. */
  readonly groups: ClientGroups;
  readonly #config: TrainConfig;
  #stepping: Promise<unknown> = Promise.resolve();
  #alone: NonNullable<ClientTrainerOptions['alone']> = (work) => work();

  /** Throws InputError for settings that cannot be combined with clients. */
  constructor({ config, engine, task = NO_TASK, limits = {}, alone, ...events }: ClientTrainerOptions) {
    this.#config = config;
    if (alone) this.#alone = alone;
    this.groups = new ClientGroups(config, engine, limits);
    this.trainer = new GrpoTrainer({ ...events, config, engine, task, source: this.groups });
  }

  /** Opens an episode and returns its client. Throws ApiError after `close`. */
  client(options: TrajectoryOptions = {}): TrainingClient {
    return new TrainingClient(this.groups, options);
  }

  /**
   * Waits for complete groups and runs one GRPO step on them. Concurrent steps run one after the other. Throws InputError if the wait ends
   * without enough groups. A failed step returns its groups.
   */
  async step(options: ClientStepOptions = {}): Promise<{ metrics: Metrics; samples: Sample[] }> {
    const turn = this.#stepping.then(() => this.#step(options));
    this.#stepping = turn.catch(() => undefined);
    return turn;
  }

  async #step({ groups = this.#config.data.trainBatchSize, signal }: ClientStepOptions) {
    const count = groups === 'all' ? this.groups.complete : groups;
    if (!(Number.isInteger(count) && count >= 1))
      throw new InputError(
        groups === 'all'
          ? 'No group is complete: each needs rollout.n episodes that have their reward.'
          : `step() was given groups ${groups}; allowed: 1, 2, 3, ... or "all".`,
      );
    if (!(await this.groups.wait(count, signal)))
      throw new InputError(
        `The step waited for ${count} complete groups, and was stopped when there were ${this.groups.complete}.`,
      );
    this.groups.requestStep(count);
    try {
      return await this.#alone(() => this.trainer.step());
    } finally {
      await this.groups.run();
    }
  }

  /** Aborts every open episode and ends waiting steps. The engine stays open. */
  async close(): Promise<void> {
    await this.groups.end();
    await this.#stepping;
  }
}
