/** Verification of samples that another machine has generated: the claim, and what can be wrong with it. */

import type { Sample } from '../../../grpo/update/batch.ts';

/** Identity of the sample in the run, as claimed. */
export interface SampleClaim {
  /** Same as PromptGroup.uid. */
  uid: string;
  /** Same as PromptGroup.number. */
  number: number;
  /** Same as PromptGroup.step. */
  step: number;
  /** Which of the group's samples: 0 .. rollout.n - 1. */
  s: number;
  /** Version of the weights that sampled its tokens, if the trajectory does not have one per token. */
  version: number;
}

/** What is wrong with a sample. */
export type RejectionReason =
  /** It is not of the form of a sample of this run, or of no group that is in flight. */
  | 'malformed'
  /** A sample of this group and number was accepted before. */
  | 'replayed sample'
  /** The prompt is not the one that the problem has. */
  | 'wrong prompt'
  /** Drawn tokens are not where turns are: a turn that ends too early or late, tokens of tools that the tools did not say. */
  | 'forged mask'
  /** The tokens are right, and what is said about their end is not: stop reason, turns, calls. */
  | 'forged ending'
  /** Its messages are not what its tokens decode to. */
  | 'forged messages'
  /** The reward is not what the reward function says of it. */
  | 'forged reward'
  /** A token is not the one that its key draws. */
  | 'forged token'
  /** The tokens are right, and their log-probs are not. */
  | 'forged log-probs'
  /** Tokens and log-probs are those of other weights than it says, or of weights that are no longer available. */
  | 'wrong weights';

/** How its drawn tokens compare with what the weights say. */
export interface DrawCheck {
  /** Drawn tokens. */
  tokens: number;
  /** Not the very draw of this adapter, but within the tolerance of it. */
  nearTokens: number;
  /** Not the draw. */
  wrongDraws: number;
  /** With a log-prob further off than the tolerance. */
  wrongLogProbs: number;
  /** Largest distance, in probability mass, of a random number from the interval that draws its token. */
  drawDistance: number;
  /** Largest difference of a log-prob, nats. */
  logProbDistance: number;
}

/** What verification says of a sample. */
export type Verdict =
  | {
      accepted: true;
      /** See DrawCheck. */
      nearTokens: number;
      check: DrawCheck;
      /** The sample as the controller has it: problem, messages and reward are its own, tokens and log-probs those claimed. */
      sample: Sample;
    }
  | {
      accepted: false;
      reason: RejectionReason;
      /** A sentence with the place and the numbers. */
      detail: string;
      /** Where its tokens were looked at. */
      check?: DrawCheck;
    };

/** Largest differences between two unlike adapters that are both honest; docs/lab/pipelines.md has what was measured. */
export interface Tolerance {
  /** Nats between two log-probs. */
  logProb: number;
  /** Probability mass between a random number and the interval that draws its token. */
  draw: number;
}

/** More than ten times the largest that was seen between two adapters in 10,000 tokens: docs/lab/pipelines.md. */
export const TOLERANCE: Tolerance = { logProb: 1e-4, draw: 1e-5 };

/** Thrown where a claim is found out; `verify` turns it into a Verdict. */
export class Rejection extends Error {
  readonly reason: RejectionReason;
  constructor(reason: RejectionReason, detail: string) {
    super(detail);
    this.reason = reason;
  }
}
