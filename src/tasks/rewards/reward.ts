/** What a reward function gets and gives. */

import type { Message, Problem } from '../problem.ts';

/** A finished sample, as a reward function sees it. */
export interface ScoredSample {
  /** What it is a try at. */
  problem: Problem;
  /** Every assistant and tool message after the prompt, decoded. */
  messages: Message[];
  /** The last assistant message. */
  response: string;
  /** Why it ended; 'completed' = by the model itself. */
  stopReason: string;
  /** Turns of the model. */
  numTurns: number;
  /** Calls that were run. */
  numToolCalls: number;
  /** Calls among them that failed. */
  numToolErrors: number;
  /** Tokens after the prompt, tool outputs among them. */
  responseTokens: number;
  /** Rewards that tools gave, by tool; see Tool.calcReward. Tools that gave none are absent. */
  toolRewards?: Readonly<Record<string, number>>;
  /** What tools and steps of the environment gave in each assistant turn: the form of Reward.turns. */
  turnRewards?: readonly number[];
  /** States of the tools that have one and of the environment, by name, as the last call left them; `release` or `close` has been called. */
  toolStates?: Readonly<Record<string, unknown>>;
  /** What the agent loop set as `sample.state`. */
  state?: unknown;
  /** The training step that it is a sample of, or that its evaluation follows; absent outside of a run. */
  globalStep?: number;
}

/** What a reward function returns. */
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
