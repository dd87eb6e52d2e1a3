/** The input of a simulation: the samples of a run's steps, and how long their parts take. */

/** Seconds of a decoding pass: perPass, plus perRow for each sequence in the pass. */
export interface DecodeCost {
  perPass: number;
  perRow: number;
  /** Seconds per context token for prefill after a lost KV cache. Default: perRow. */
  perContextToken?: number;
}

/** One sample: for each turn its number of tokens, and the seconds of the tool calls after it. */
export interface SampleWork {
  /** Index of the sample's prompt. Samples of one prompt form a group. */
  group: number;
  turns: { tokens: number; toolSeconds: number }[];
}

/** The measured work of a run, for a simulation on other devices. */
export interface Workload {
  /** Samples of each step, in the order of their prompts. A simulation with more steps starts again with the first one. */
  steps: SampleWork[][];
  decode: DecodeCost;
  /** For each step, the seconds to train on its samples with one device (log-probs, backward pass, optimizer). */
  trainSeconds: number[];
  /** Seconds for which rollout is paused at a weight sync. */
  syncSeconds: number;
  /** Mean number of tokens of a prompt, which is prefilled once per group. */
  promptTokens: number;
}
