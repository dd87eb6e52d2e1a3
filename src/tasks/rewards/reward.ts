/** Types of the input and the result of a reward function. */

import type { Message, Problem } from '../problem.ts';

/** A finished sample, as a reward function receives it. */
export interface ScoredSample {
  /** Problem that the sample answers. */
  problem: Problem;
  /** Every assistant and tool message after the prompt, decoded. */
  messages: Message[];
  /** The last assistant message. */
  response: string;
  /** Reason why the sample ended; 'completed' = the model ended it. */
  stopReason: string;
  /** Number of the model's turns. */
  numTurns: number;
  /** Number of tool calls that were run. */
  numToolCalls: number;
  /** Number of tool calls that were run and failed. */
  numToolErrors: number;
  /** Number of tokens after the prompt, tool outputs included. */
  responseTokens: number;
  /** Rewards of tools, by tool; see Tool.calcReward. Tools without a reward are missing. */
  toolRewards?: Readonly<Record<string, number>>;
  /** Rewards of tools and environment steps for each assistant turn, like Reward.turns. */
  turnRewards?: readonly number[];
  /** Final states of stateful tools and of the environment, by name. Their `release` or `close` has been called. */
  toolStates?: Readonly<Record<string, unknown>>;
  /** Value that the agent loop set as `sample.state`. */
  state?: unknown;
  /** Training step of the sample. For an evaluation, the step before it. Undefined outside a run. */
  globalStep?: number;
}

/** Result of a reward function. */
export interface Reward {
  /**
   * Outcome plus shaping, from which the advantage is computed. NaN = missing: the sample is not trained on, and no other sample is
   * compared with it.
   */
  score: number;
  /** Outcome alone, 0 or 1; reported as `acc`. NaN = missing. */
  acc: number;
  /** Answer as read from the response. A majority vote over several samples counts equal answers (verl's `pred`). */
  pred?: string;
  /**
   * Additional named values. Numbers become the metrics `reward/<name>/mean` and `/std`, in which NaN values are skipped. Texts appear only
   * in the logged rollouts.
   */
  extra?: Record<string, number | string>;
  /** Weights of those numbers in `extra` whose weighted sum is the score; see combineRewards. */
  weights?: Readonly<Record<string, number>>;
  /**
   * Reward of each assistant turn, for advEstimator turn_loo. Their sum is a part of the score. There must be one number for each turn of
   * the sample, with or without a tool call; NaN counts as 0. Consecutive turns without a message between them count as one. A sample with
   * too few numbers ends the run.
   */
  turns?: number[];
}
