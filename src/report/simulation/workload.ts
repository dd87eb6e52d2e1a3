/** What a simulation is fed with: the samples of a run's steps and what their parts cost. */

/** Seconds of a decoding pass: so much, and so much a sequence in it. */
export interface DecodeCost {
  perPass: number;
  perRow: number;
  /** Of a token of a context that is computed anew; absent = as perRow. */
  perContextToken?: number;
}

/** One sample: by turn, the tokens it draws and the seconds its tools then take. */
export interface SampleWork {
  /** Samples of one prompt are trained together. */
  group: number;
  turns: { tokens: number; toolSeconds: number }[];
}

export interface Workload {
  /** Samples by step, in the order in which their prompts come; reused in turn where a simulation is longer. */
  steps: SampleWork[][];
  decode: DecodeCost;
  /** Seconds to train on the samples of a step (log-probs, backward, optimizer), on one device. */
  trainSeconds: number[];
  /** Seconds in which rollout stands still for new weights. */
  syncSeconds: number;
  /** Tokens of a prompt, which the samples of a group compute once. */
  promptTokens: number;
}
