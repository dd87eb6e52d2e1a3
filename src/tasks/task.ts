/** A task = problems + tools + a reward. A custom one has under 40 lines; see README. */

import type { Environment } from './environments/environment.ts';
import type { Message, Problem } from './problem.ts';
import type { Rng } from './random.ts';
import type { Reward, ScoredSample } from './rewards/reward.ts';
import type { Tool } from './tool.ts';

export type { Message, Problem } from './problem.ts';
export type { Reward, ScoredSample } from './rewards/reward.ts';

/** A task for a model: problems, tools, a reward. */
export interface Task {
  /** Name in its metrics: `val-core/<name>/acc/mean@1`. */
  name: string;
  /** Returns training problem `index` (0, 1, 2, ...: endless, or a cycled file), determined by `seed`. Called concurrently for a step. */
  train(index: number, seed: number): Problem | Promise<Problem>;
  /** Number of training problems, if finite: `train` returns each of them once per `trainSize` numbers. */
  trainSize?: number;
  /** Returns held-out problems, disjoint from training; `count` of each `dataSource`. */
  heldOut(count: number): Problem[] | Promise<Problem[]>;
  /** Tools that the model can call. Default: no tools. */
  tools?: Tool[];
  /** Environments; a problem runs in the one that `Problem.environment` names, or in the only one. See defineEnvironment. */
  environments?: readonly Environment[];
  /** Scores a finished sample. If it throws or does not return a Reward, trainer.onError decides: end the run or leave the sample out. */
  reward(sample: ScoredSample): Reward | Promise<Reward>;
  /**
   * Called with the rewards of every group of a training problem, before the next step's problems are drawn. A generated task can
   * adapt its difficulty to them.
   */
  observe?(problem: Problem, rewards: readonly Reward[]): void | Promise<void>;
  /** Returns the state that `observe` changes, as plain JSON. It is saved in the checkpoint and passed to `restore` on resume. */
  state?(): unknown;
  /** Restores a result of `state`. */
  restore?(state: unknown): void;
  /**
   * Returns the ideal messages after the prompt, assistant turns with tool outputs between them: examples of a supervised warm
   * start (`webgrpo sft`). With probability `errorRate` they contain a mistake, which GRPO can then correct. A leading user message
   * is the environment's first observation.
   */
  demonstrate?(problem: Problem, rng: Rng, errorRate: number): Message[] | Promise<Message[]>;
  /**
   * Returns the messages for a user's own question, in the format of the task's problems. If undefined, the messages of a problem are
   * used, with the question as the text of the last one.
   */
  ask?(text: string): Message[];
  /** Entries of the tokenizer that is trained on the task's own text for a fresh model. */
  tokenizer?: { vocabSize: number; wordShare: number };
  /** SHA-256 of the task's module, or of its data files. */
  sha256?: string;
  /** Frees what the task holds, e.g. a worker. Called by the code that opened the task. */
  close?(): void;
}

/** A task that returns its problems synchronously, as the shipped ones do. */
export interface SyncTask extends Task {
  train(index: number, seed: number): Problem;
  heldOut(count: number): Problem[];
  demonstrate?(problem: Problem, rng: Rng, errorRate: number): Message[];
}
