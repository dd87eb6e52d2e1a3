/** Types of the verification of samples from another machine: the claim, and the reasons for a rejection. */

import type { Sample } from '../../../grpo/update/batch.ts';

/** Identity of the sample in the run, as claimed. */
export interface SampleClaim {
  /** Same as PromptGroup.uid. */
  uid: string;
  /** Same as PromptGroup.number. */
  number: number;
  /** Same as PromptGroup.step. */
  step: number;
  /** Index of the sample in its group: 0 .. rollout.n - 1. */
  s: number;
  /** Version of the weights in the group's prompt. It must have sampled all tokens. */
  version: number;
}

/** Reason for which a sample is rejected. */
export type RejectionReason =
  /** The sample does not have the form of this run's samples, or its group is not in flight. */
  | 'malformed'
  /** A sample of this group and number was accepted before. */
  | 'replayed sample'
  /** The prompt is not the problem's. */
  | 'wrong prompt'
  /** Sampled tokens are not where turns are: a turn ends too early or late, or tool tokens differ from the tools' outputs. */
  | 'forged mask'
  /** The tokens are right, but a claim about their end is wrong: stop reason, turns, calls. */
  | 'forged ending'
  /** The messages are not what the tokens decode to. */
  | 'forged messages'
  /** The reward is not what the reward function returns. */
  | 'forged reward'
  /** A token was sampled by another version of the weights than the prompt's. */
  | 'forged version'
  /** A token is not the one that its random key selects. */
  | 'forged token'
  /** The tokens are right, but their log-probs are wrong. */
  | 'forged log-probs'
  /** Tokens and log-probs belong to other weights than the prompt's. */
  | 'wrong weights';

/** Result of comparing a sample's tokens with the weights. */
export interface DrawCheck {
  /** Number of sampled tokens. */
  tokens: number;
  /** Tokens that differ from this adapter's, but within the tolerance. */
  nearTokens: number;
  /** Near tokens that differ by more than the tolerance's share of their own mass. */
  looseTokens: number;
  /** Number of tokens that differ from the exact draw by more than the tolerance. */
  wrongDraws: number;
  /** Number of tokens whose log-prob differs by more than the tolerance. */
  wrongLogProbs: number;
  /** Largest distance, in probability mass, of a random number from the interval that selects its token. */
  drawDistance: number;
  /** Largest difference of a log-prob, in nats. */
  logProbDistance: number;
}

/** Result of verifying a sample. */
export type Verdict =
  | {
      accepted: true;
      /** See DrawCheck. */
      nearTokens: number;
      check: DrawCheck;
      /** The controller's version of the sample: its own problem, messages and reward, with the claimed tokens and log-probs. */
      sample: Sample;
    }
  | {
      accepted: false;
      reason: RejectionReason;
      /** A sentence that names the place and the numbers. */
      detail: string;
      /** Present if the sample's tokens were checked. */
      check?: DrawCheck;
    };

/** Largest differences between two unlike adapters that are both honest; docs/lab/pipelines.md has the measurements. */
export interface Tolerance {
  /** Nats between two log-probs. */
  logProb: number;
  /** Probability mass between a random number and the interval that selects its token. */
  draw: number;
  /** The same as a share of the token's own mass. It bounds how much likelier a worker can make any token. */
  share: number;
  /**
   * Share of a sample's tokens that can exceed `share`, but one token at least. Rounding is absolute, so an honest token of tiny mass
   * exceeds it now and then.
   */
  loose: number;
  /** Share of a sample's tokens that can be within `draw` without being the exact draw, but two tokens at least. */
  near: number;
}

/** Both limits are more than ten times the largest difference measured between two adapters in 10,000 tokens: docs/lab/pipelines.md. */
export const TOLERANCE: Tolerance = { logProb: 1e-4, draw: 1e-5, share: 0.01, loose: 0.01, near: 0.02 };

/** Thrown if a claim is wrong. `verify` converts it to a Verdict. */
export class Rejection extends Error {
  readonly reason: RejectionReason;
  constructor(reason: RejectionReason, detail: string) {
    super(detail);
    this.reason = reason;
  }
}
