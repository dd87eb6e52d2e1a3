/** Input of a simulation: the samples of a run's steps and the cost of their parts. */

/** Seconds of a decoding pass: a fixed part, and a part per sequence in it. */
export interface DecodeCost {
  perPass: number;
  perRow: number;
  /** Seconds per token of a context that is recomputed. Default: perRow. */
  perContextToken?: number;
}

/** One sample: per turn, its tokens and the seconds of the tools after it. */
export interface SampleWork {
  /** Index of the prompt; samples of one prompt are trained together. */
  group: number;
  turns: { tokens: number; toolSeconds: number }[];
}

/** Work of a run, as measured, to be simulated on other devices. */
export interface Workload {
  /** Samples by step, in the order of their prompts; a longer simulation starts again with the first step. */
  steps: SampleWork[][];
  decode: DecodeCost;
  /** Seconds to train on the samples of a step (log-probs, backward, optimizer), on one device. */
  trainSeconds: number[];
  /** Seconds in which rollout is paused for new weights. */
  syncSeconds: number;
  /** Tokens of a prompt, which are prefilled once per group. */
  promptTokens: number;
}
