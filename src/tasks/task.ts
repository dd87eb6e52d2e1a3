/** A task: problems, tools and a reward. A custom task takes less than 40 lines; see README. */

import type { Environment } from './environments/environment.ts';
import type { Message, Problem } from './problem.ts';
import type { Rng } from './random.ts';
import type { Reward, ScoredSample } from './rewards/reward.ts';
import type { Tool } from './tool.ts';

export type { Message, Problem } from './problem.ts';
export type { Reward, ScoredSample } from './rewards/reward.ts';

/** A task: problems, tools and a reward. */
export interface Task {
  /** Name of the task, also in the names of its metrics: `val-core/<name>/acc/mean@1`. */
  name: string;
  /**
   * Returns training problem number `index` (0, 1, 2, ...), which depends only on `index` and `seed`. A task with a finite number of
   * problems repeats them. Called concurrently for the problems of a step.
   */
  train(index: number, seed: number): Problem | Promise<Problem>;
  /** Number of training problems, if finite. In each range of `trainSize` indices, `train` returns each problem once. */
  trainSize?: number;
  /** Returns held-out problems, none of which is a training problem: `count` of each `dataSource`. */
  heldOut(count: number): Problem[] | Promise<Problem[]>;
  /** Tools that the model can call. Default: no tools. */
  tools?: Tool[];
  /** Environments of the task. A problem runs in the one that `Problem.environment` names, or in the only one. See defineEnvironment. */
  environments?: readonly Environment[];
  /**
   * Scores a finished sample. If the function throws or does not return a Reward, trainer.onError decides: the run ends, or the sample is
   * skipped.
   */
  reward(sample: ScoredSample): Reward | Promise<Reward>;
  /**
   * Called with the rewards of every group of training samples before the next step's problems are requested. A generated task can adapt
   * its difficulty to the rewards.
   */
  observe?(problem: Problem, rewards: readonly Reward[]): void | Promise<void>;
  /** Returns as plain JSON the state that `observe` changes. It is saved in checkpoints, and passed to `restore` on resume. */
  state?(): unknown;
  /** Restores a state that `state` has returned. */
  restore?(state: unknown): void;
  /**
   * Returns the messages after the prompt that would be ideal: assistant turns, with tool outputs between them. They are the examples of a
   * supervised warm start (`webgrpo sft`). With probability `errorRate` they have a mistake, so that GRPO has something to improve. A user
   * message at the start is the first observation of the environment.
   */
  demonstrate?(problem: Problem, rng: Rng, errorRate: number): Message[] | Promise<Message[]>;
  /**
   * Returns the messages for a question of the user, in the format of the task's problems. If undefined, the messages of a problem are
   * used, with the question as the text of the last message.
   */
  ask?(text: string): Message[];
  /**
   * Tokenizer that is trained on the task's own text for a new model: its number of entries, and the largest share of them that can be
   * complete words.
   */
  tokenizer?: { vocabSize: number; wordShare: number };
  /** SHA-256 of the file of the task's module, or of its data files. */
  sha256?: string;
  /** Frees what the task uses, e.g. a worker. Called by the code that opened the task. */
  close?(): void;
}

/** A task that returns its problems synchronously, as the tasks of this repository do. */
export interface SyncTask extends Task {
  train(index: number, seed: number): Problem;
  heldOut(count: number): Problem[];
  demonstrate?(problem: Problem, rng: Rng, errorRate: number): Message[];
}
