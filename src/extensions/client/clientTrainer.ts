/** Trains on what an agent of one's own does with a client: the agent calls the model, gives a reward, and the trainer steps. */

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

/** What a ClientTrainer is made of, and whom it tells. */
export interface ClientTrainerOptions extends TrainerEvents {
  /** Result of `resolveTrainConfig`. */
  config: TrainConfig;
  /** Local or remote. */
  engine: TrainerEngine;
  /** Its held-out problems serve `trainer.validate()`; absent = there are none. */
  task?: Task;
  /** Bounds of what is open and waits; absent = the defaults. */
  limits?: ClientLimits;
  /** Runs a step's work when nothing else uses the model; absent = at once. */
  alone?<T>(work: () => Promise<T>): Promise<T>;
}

/** Which groups a step trains on. */
export interface ClientStepOptions {
  /** Complete groups to train on, which the step waits for; 'all' = those that are complete now. Default data.trainBatchSize. */
  groups?: number | 'all';
  /** Ends the wait: the step rejects, and nothing is taken. */
  signal?: AbortSignal;
}

/** What `Learner.client` and `webgrpo serve` train by: episodes of clients, in groups, and GrpoTrainer's step on those that are complete. */
export class ClientTrainer {
  /** What trains: checkpoints, evaluations and state are its own. */
  readonly trainer: GrpoTrainer;
  /** Episodes that are open or wait. */
  readonly groups: ClientGroups;
  readonly #config: TrainConfig;
  #stepping: Promise<unknown> = Promise.resolve();
  #alone: NonNullable<ClientTrainerOptions['alone']> = (work) => work();

  /** Throws InputError for settings that do not go with clients. */
  constructor({ config, engine, task = NO_TASK, limits = {}, alone, ...events }: ClientTrainerOptions) {
    this.#config = config;
    if (alone) this.#alone = alone;
    this.groups = new ClientGroups(config, engine, limits);
    this.trainer = new GrpoTrainer({ ...events, config, engine, task, source: this.groups });
  }

  /** The client of one episode. Throws ApiError after `close`. */
  client(options: TrajectoryOptions = {}): TrainingClient {
    return new TrainingClient(this.groups, options);
  }

  /**
   * One GRPO step on complete groups, which it waits for: steps that are asked for at once run one after the other. Throws
   * InputError where the wait ends without them. A step that fails gives its groups back.
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
        `The step waited for ${count} complete groups, and was ended when there were ${this.groups.complete}.`,
      );
    this.groups.requestStep(count);
    try {
      return await this.#alone(() => this.trainer.step());
    } finally {
      await this.groups.run();
    }
  }

  /** Aborts every open episode, and ends steps that wait. The engine stays. */
  async close(): Promise<void> {
    await this.groups.end();
    await this.#stepping;
  }
}
