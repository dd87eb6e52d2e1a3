/** Input and result of a reward function. */

import type { Message, Problem } from '../problem.ts';

/** A finished sample, as a reward function sees it. */
export interface ScoredSample {
  /** Problem that the sample answers. */
  problem: Problem;
  /** Every assistant and tool message after the prompt, decoded. */
  messages: Message[];
  /** The last assistant message. */
  response: string;
  /** Reason for its end; 'completed' = the model ended it. */
  stopReason: string;
  /** Turns of the model. */
  numTurns: number;
  /** Calls that were run. */
  numToolCalls: number;
  /** Calls that were run and failed. */
  numToolErrors: number;
  /** Tokens after the prompt, including tool outputs. */
  responseTokens: number;
  /** Rewards by tool; see Tool.calcReward. Tools without a reward are not listed. */
  toolRewards?: Readonly<Record<string, number>>;
  /** Rewards from tools and environment steps per assistant turn, in the form of Reward.turns. */
  turnRewards?: readonly number[];
  /** Final states of stateful tools and of the environment, by name; `release` or `close` has been called. */
  toolStates?: Readonly<Record<string, unknown>>;
  /** Value that the agent loop set as `sample.state`. */
  state?: unknown;
  /** Training step of the sample, or the step before its evaluation; undefined outside a run. */
  globalStep?: number;
}

/** Result of a reward function. */
export interface Reward {
  /** Outcome plus shaping, from which the advantage is computed. NaN = missing: the sample is neither trained on nor compared with. */
  score: number;
  /** Outcome only, 0 or 1: reported as `acc`. NaN = missing. */
  acc: number;
  /** Answer as read from the response, which a majority vote of several samples counts (verl's `pred`). */
  pred?: string;
  /**
   * Additional named values. Numbers become the metrics `reward/<name>/mean` and `/std`, without NaN values. Texts appear only
   * in the logged rollouts.
   */
  extra?: Record<string, number | string>;
  /** Numbers of `extra` whose weighted sum is the score, each with its weight; see combineRewards. */
  weights?: Readonly<Record<string, number>>;
  /**
   * Reward of each assistant turn, for advEstimator turn_loo. Their sum is part of the score. One number
   * for each turn of the sample, with or without a tool call; NaN counts as 0. Consecutive turns without a message between them
   * count as one. Too few numbers end the run at the first such sample.
   */
  turns?: number[];
}
