/**
 * Trains on the calls of a user's own agent. The agent calls the model through a client and sets a reward; the trainer then runs a step.
 */

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
  /** A local engine or one in a worker. */
  engine: TrainerEngine;
  /** Task whose held-out problems `trainer.validate()` evaluates. Default: none. */
  task?: Task;
  /** Limits on the episodes that are open or wait for their step. */
  limits?: ClientLimits;
  /** Runs `work`, a training step, once no other caller uses the model. Default: runs `work` immediately. */
  alone?<T>(work: () => Promise<T>): Promise<T>;
}

/** Selects the groups that a step trains on. */
export interface ClientStepOptions {
  /**
   * Number of complete groups to wait for and train on; 'all' = all groups that are complete when the step is called. Default:
   * data.trainBatchSize.
   */
  groups?: number | 'all';
  /** If this signal aborts, the wait for complete groups ends: the step rejects, and the groups stay for the next step. */
  signal?: AbortSignal;
}

/** Trainer behind `Learner.client`: groups the episodes of clients and runs GrpoTrainer's step on complete groups. */
export class ClientTrainer {
  /** The GrpoTrainer, for checkpoints, evaluations and its state. */
  readonly trainer: GrpoTrainer;
  /** The episodes that are open or wait for their step, by group. */
  readonly groups: ClientGroups;
  readonly #config: TrainConfig;
  #stepping: Promise<unknown> = Promise.resolve();
  #alone: NonNullable<ClientTrainerOptions['alone']> = (work) => work();

  /** Throws InputError for settings that do not work with clients. */
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
   * Waits for complete groups and runs one GRPO step on them. Calls made at the same time run one after the other. Throws InputError if the
   * wait ends before enough groups are complete. If a step fails, its groups can be trained on again.
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

  /** Aborts all open episodes and ends steps that wait for groups. The engine stays open. */
  async close(): Promise<void> {
    await this.groups.end();
    await this.#stepping;
  }
}
