/** A task = problems + tools + a reward. A user's own is under 40 lines; see README. */

import type { Message, Problem } from './problem.ts';
import type { Rng } from './random.ts';
import type { Tool } from './tool.ts';

export type { Message, Problem } from './problem.ts';

/** A finished sample, as a reward function sees it. */
export interface ScoredSample {
  problem: Problem;
  /** Every assistant and tool message after the prompt, decoded. */
  messages: Message[];
  /** The last assistant message. */
  response: string;
  stopReason: string;
  numTurns: number;
  numToolCalls: number;
  numToolErrors: number;
  responseTokens: number;
  /** Rewards that tools gave, by tool; see Tool.calcReward. Tools that gave none are absent. */
  toolRewards?: Readonly<Record<string, number>>;
  /** States of the tools that have one, by tool, as the last call left them; `release` has been called on them. */
  toolStates?: Readonly<Record<string, unknown>>;
  /** What the agent loop set as `sample.state`. */
  state?: unknown;
  /** The training step that it is a sample of, or that its evaluation follows; absent outside of a run. */
  globalStep?: number;
}

export interface Reward {
  /** The advantage is computed from it: outcome plus shaping. NaN = missing: the sample is neither trained on nor compared with. */
  score: number;
  /** The outcome alone, 0 or 1: reported as `acc`. NaN = missing. */
  acc: number;
  /** The answer as read from the response: what a majority vote of several samples counts (verl's `pred`). */
  pred?: string;
  /**
   * Further named values. Of numbers metrics tell mean and spread, `reward/<name>/mean` and `/std`, without those that are
   * NaN; texts are logged with the rollouts alone.
   */
  extra?: Record<string, number | string>;
  /** The numbers of `extra` that the score is the sum of, each times its weight; see combineRewards. */
  weights?: Readonly<Record<string, number>>;
  /**
   * Reward of each assistant turn, for the per-turn credit of advEstimator turn_loo; their sum is part of the score. One
   * number for each turn that the sample has, with or without a tool call; NaN counts as 0. Turns with nothing said between
   * them are one. Too few end the run at the first such sample.
   */
  turns?: number[];
}

export interface Task {
  name: string;
  /** Training problem `index` (0, 1, 2, ...: an endless stream or a cycled file), fixed by `seed`. */
  train(index: number, seed: number): Problem;
  /** Training problems that there are, where they are not endless: `train` gives each of them once in so many numbers. */
  trainSize?: number;
  /** Held-out problems, disjoint from training; `count` of each `dataSource`. */
  heldOut(count: number): Problem[];
  tools?: Tool[];
  reward(sample: ScoredSample): Reward | Promise<Reward>;
  /**
   * Hears the rewards of every group of samples of a training problem, before the next step's problems are drawn: a
   * generated task may move its own difficulty by them.
   */
  observe?(problem: Problem, rewards: readonly Reward[]): void;
  /** What `observe` has moved, as plain JSON: goes into the checkpoint, and comes back by `restore` when a run goes on. */
  state?(): unknown;
  restore?(state: unknown): void;
  /**
   * The messages that a sample should have after the prompt, assistant turns with tool outputs between them: examples of a
   * supervised warm start (`webgrpo sft`). With probability `errorRate` it is a wrong one, so that GRPO has something to find.
   */
  demonstrate?(problem: Problem, rng: Rng, errorRate: number): Message[];
  /** Entries of the tokenizer that is trained for a fresh model on the task's own text. */
  tokenizer?: { vocabSize: number; wordShare: number };
}
