/** A task = problems + tools + a reward. A user's own is under 40 lines; see README. */

import type { Environment } from './environments/environment.ts';
import type { Message, Problem } from './problem.ts';
import type { Rng } from './random.ts';
import type { Reward, ScoredSample } from './rewards/reward.ts';
import type { Tool } from './tool.ts';

export type { Message, Problem } from './problem.ts';
export type { Reward, ScoredSample } from './rewards/reward.ts';

/** What a model learns: problems, tools, a reward. */
export interface Task {
  /** Names its metrics: `val-core/<name>/acc/mean@1`. */
  name: string;
  /** Training problem `index` (0, 1, 2, ...: an endless stream or a cycled file), fixed by `seed`. A step's problems are asked for at once. */
  train(index: number, seed: number): Problem | Promise<Problem>;
  /** Training problems that there are, where they are not endless: `train` gives each of them once in so many numbers. */
  trainSize?: number;
  /** Held-out problems, disjoint from training; `count` of each `dataSource`. */
  heldOut(count: number): Problem[] | Promise<Problem[]>;
  /** What the model may call; absent = none. */
  tools?: Tool[];
  /** Where problems run: in the one that `Problem.environment` names, or in the only one; see defineEnvironment. */
  environments?: readonly Environment[];
  /** Scores a finished sample. A throw, or what is no Reward, ends the run or is counted, as trainer.onError says. */
  reward(sample: ScoredSample): Reward | Promise<Reward>;
  /**
   * Hears the rewards of every group of samples of a training problem, before the next step's problems are drawn: a
   * generated task may move its own difficulty by them.
   */
  observe?(problem: Problem, rewards: readonly Reward[]): void | Promise<void>;
  /** What `observe` has moved, as plain JSON: goes into the checkpoint, and comes back by `restore` when a run goes on. */
  state?(): unknown;
  /** Takes back what `state` gave. */
  restore?(state: unknown): void;
  /**
   * The messages that a sample should have after the prompt, assistant turns with tool outputs between them: examples of a
   * supervised warm start (`webgrpo sft`). With probability `errorRate` it is a wrong one, so that GRPO has something to find. A user
   * message at their head is the environment's first observation.
   */
  demonstrate?(problem: Problem, rng: Rng, errorRate: number): Message[] | Promise<Message[]>;
  /**
   * The messages of a question of somebody's own, in the format of the task's problems; absent = those of a problem, with the
   * question in place of the last one's text.
   */
  ask?(text: string): Message[];
  /** Entries of the tokenizer that is trained for a fresh model on the task's own text. */
  tokenizer?: { vocabSize: number; wordShare: number };
  /** SHA-256 of the module that it came from with all that this imports, of one that was opened by address. */
  sha256?: string;
  /** Frees what the task holds, e.g. a worker. Whoever opened the task calls it. */
  close?(): void;
}

/** A task that has its problems at once, as the shipped ones do. */
export interface SyncTask extends Task {
  train(index: number, seed: number): Problem;
  heldOut(count: number): Problem[];
  demonstrate?(problem: Problem, rng: Rng, errorRate: number): Message[];
}
