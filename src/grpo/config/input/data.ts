/** `data` of a training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

export interface DataInput {
  /** Prompts a step; samples a step = this x rollout.n. Allowed: integer >= 1 (prompts). Default: 16. */
  trainBatchSize?: number | undefined;
  /** A longer prompt ends the run, unless one of the next two keys is set. Allowed: integer >= 1 (tokens). Default: 160. */
  maxPromptLength?: number | undefined;
  /** Leave out problems with longer prompts, training and held-out; says how many. Allowed: true | false. Default: false. */
  filterOverlongPrompts?: boolean | undefined;
  /** What a longer prompt loses, in tokens of the rendered prompt: left = its start, right = its end (the assistant header with it), middle = what is between the two halves. Allowed: error | left | right | middle. Default: "error". */
  truncation?: 'error' | 'left' | 'right' | 'middle' | undefined;
  /** Variables that the chat template gets beside the messages, e.g. Qwen3's enable_thinking. Allowed: named values. Default: {}. */
  chatTemplateKwargs?: Record<string, string | number | boolean> | undefined;
  /** Everything after the prompt, tool output included. Allowed: integer >= 1 (tokens). Default: 160. */
  maxResponseLength?: number | undefined;
  /** Train on so many problems of the file (chosen by seed), or of the generated stream, over and over; -1 or absent = all. Allowed: integer >= 1, or -1 (problems). */
  trainMaxSamples?: number | undefined;
  /** difficulty = draw problems by the score of their last group, as the pools below say; needs a finite set. Allowed: sequential | difficulty. Default: "sequential". */
  sampler?: 'sequential' | 'difficulty' | undefined;
  difficulty?: DataDifficultyInput | undefined;
  /** Held-out problems an evaluation uses, of each set; 256 gives pass@1 to about 3 points. Allowed: integer >= 1 (problems). Default: 256. */
  valMaxSamples?: number | undefined;
}

interface DataDifficultyInput {
  /** A problem is hard while the mean score of its last group is at most this. Allowed: 0 to 1 (reward). Default: 0.25. */
  hard?: number | undefined;
  /** It is easy above this, and normal between. Allowed: 0 to 1 (reward). Default: 0.75. */
  easy?: number | undefined;
  /** How often a hard problem is drawn, beside 1 for one that was not drawn yet. Allowed: >= 0. Default: 0.2. */
  hardWeight?: number | undefined;
  /** The same for a normal one. Allowed: >= 0. Default: 1. */
  normalWeight?: number | undefined;
  /** The same for an easy one. Allowed: >= 0. Default: 0.2. */
  easyWeight?: number | undefined;
}
