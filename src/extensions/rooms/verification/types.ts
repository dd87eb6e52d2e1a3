/** Types for the verification of samples from other machines: what a worker claims, and why a sample is rejected. */

import type { Sample } from '../../../grpo/update/batch.ts';

/** Which sample of the run a worker claims to send. */
export interface SampleClaim {
  /** Same as PromptGroup.uid. */
  uid: string;
  /** Same as PromptGroup.number. */
  number: number;
  /** Same as PromptGroup.step. */
  step: number;
  /** Index of the sample in its group, from 0 to rollout.n - 1. */
  s: number;
  /** Version of the weights that the group's prompt names. These weights must have sampled all tokens. */
  version: number;
}

/** Reason why a sample is rejected. */
export type RejectionReason =
  /** A field has the wrong type or length, or the sample's group is not in flight. */
  | 'malformed'
  /** A sample with this group and index was already accepted. */
  | 'replayed sample'
  /** The prompt's tokens are not those of the problem. */
  | 'wrong prompt'
  /** The mask does not fit the agent loop: a turn ends too early or too late, or tokens between turns differ from the tools' outputs. */
  | 'forged mask'
  /** The stop reason, or the number of turns or tool calls, is not what the tokens lead to. */
  | 'forged ending'
  /** The messages are not what the tokens decode to. */
  | 'forged messages'
  /** The reward is not what the reward function returns. */
  | 'forged reward'
  /** Some tokens were, by the worker's own account, sampled by another version of the weights than the prompt names. */
  | 'forged version'
  /** A token is not the one that its random key selects. */
  | 'forged token'
  /** The tokens are right, but their log-probs are wrong. */
  | 'forged log-probs'
  /** Tokens and log-probs come from other weights than the prompt names. */
  | 'wrong weights';

/** Result of checking a sample's tokens and log-probs against the weights. */
export interface DrawCheck {
  /** Number of sampled tokens. */
  tokens: number;
  /** Number of tokens that are not the one that the random key selects on this adapter, but within the tolerance (near tokens). */
  nearTokens: number;
  /**
   * Number of those near tokens (see nearTokens) whose distance, relative to the token's own probability mass, exceeds the tolerance
   * `share`.
   */
  looseTokens: number;
  /** Number of tokens that are not the one that the random key selects, beyond the tolerance. */
  wrongDraws: number;
  /** Number of tokens whose log-prob is wrong by more than the tolerance. */
  wrongLogProbs: number;
  /** Largest distance, in probability mass, between a token's random number and the interval of random numbers that select this token. */
  drawDistance: number;
  /** Largest difference between a claimed and the computed log-prob, in nats. */
  logProbDistance: number;
}

/** Result of verifying a sample. */
export type Verdict =
  | {
      accepted: true;
      /** See DrawCheck. */
      nearTokens: number;
      check: DrawCheck;
      /** The sample to train on: problem, messages and reward as the controller computed them, with the worker's tokens and log-probs. */
      sample: Sample;
    }
  | {
      accepted: false;
      reason: RejectionReason;
      /** A sentence that says what is wrong and where. */
      detail: string;
      /** Present if the tokens were checked before the rejection. */
      check?: DrawCheck;
    };

/**
 * Largest differences that are accepted, because honest workers on different adapters round differently. docs/lab/pipelines.md has the
 * measurements.
 */
export interface Tolerance {
  /** Largest difference between a claimed and the computed log-prob, in nats. */
  logProb: number;
  /** Largest distance, in probability mass, between a token's random number and the interval of random numbers that select this token. */
  draw: number;
  /**
   * Largest distance as in `draw`, relative to the token's own probability mass. It limits by how much a worker can raise the probability
   * of a token.
   */
  share: number;
  /**
   * Share of a sample's tokens whose relative distance can exceed the limit `share`; at least one token can. Rounding errors are absolute,
   * so honest tokens of tiny probability exceed the limit now and then.
   */
  loose: number;
  /** Share of a sample's tokens that can be near tokens (within `draw`, but not the selected token); at least two tokens can. */
  near: number;
}

/**
 * `logProb` and `draw` are more than ten times the largest differences between two adapters that were measured in 10,000 tokens; see
 * docs/lab/pipelines.md.
 */
export const TOLERANCE: Tolerance = { logProb: 1e-4, draw: 1e-5, share: 0.01, loose: 0.01, near: 0.02 };

/** Thrown if a sample differs from what it must be. `verify` converts the error to a Verdict. */
export class Rejection extends Error {
  readonly reason: RejectionReason;
  constructor(reason: RejectionReason, detail: string) {
    super(detail);
    this.reason = reason;
  }
}
