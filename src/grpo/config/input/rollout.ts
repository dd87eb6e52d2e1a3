/** `rollout` of a training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

export interface RolloutInput {
  /** Samples per prompt: the group that advantages are computed over. Allowed: integer >= 1 (samples). Default: 8. */
  n?: number | undefined;
  /** Training divides logits by it as well, so that both see one distribution. Allowed: 0.000001 to 1000000. Default: 1. */
  temperature?: number | undefined;
  /** Keep the k likeliest; 0 = off. Training renormalises by the kept mass. Allowed: integer >= 0, or -1 = 0 (tokens). Default: 0. */
  topK?: number | undefined;
  /** Keep the smallest set of this mass; 1 = off. Allowed: 0.000001 to 1 (probability). Default: 1. */
  topP?: number | undefined;
  /** Keep tokens above this share; 0 = off. Allowed: 0 to 1 (share of the largest probability). Default: 0. */
  minP?: number | undefined;
  /** Above 1 makes tokens of the context and the turn less likely; 1 = off. Allowed: > 0. Default: 1. */
  repetitionPenalty?: number | undefined;
  /** Taken off tokens that the turn has drawn; 0 = off. Allowed: any number (logit). Default: 0. */
  presencePenalty?: number | undefined;
  /** Taken off for each time it was drawn; 0 = off. Allowed: any number (logit). Default: 0. */
  frequencyPenalty?: number | undefined;
  /** A turn cannot end before so many; 0 = off. Allowed: integer >= 0 (tokens). Default: 0. */
  minNewTokens?: number | undefined;
  /** Texts that end a turn, wherever in a token; absent = only its end token does. Allowed: list of texts. */
  stop?: string[] | undefined;
  /** Whether tools and rewards see such a text in the turn; vLLM's name. Allowed: true | false. Default: false. */
  includeStopStrInOutput?: boolean | undefined;
  /** Start so many more, train on the first complete; 0 = off. Allowed: 0 to 8 (share of prompts). Default: 0. */
  overSampleRate?: number | undefined;
  /** Go on in the next step with what overSampleRate left over; false = throw it away. Allowed: true | false. Default: false. */
  partialRollout?: boolean | undefined;
  /** Sequences decoded at once; bounds the KV cache. Allowed: integer >= 1 (sequences). Default: 128. */
  maxNumSeqs?: number | undefined;
  /** Whose slot goes to one that waits: samples in a slow tool call, or latest arrived first; no token changes. Allowed: off | parked | latest. Default: "parked". */
  preemption?: 'off' | 'parked' | 'latest' | undefined;
  /** Start a pass before the last one was read, so that the GPU never waits; auto = where it pays; no token changes. Allowed: auto | on | off. Default: "auto". */
  asyncScheduling?: 'auto' | 'on' | 'off' | undefined;
  speculative?: RolloutSpeculativeInput | undefined;
  checkpointEngine?: RolloutCheckpointEngineInput | undefined;
  multiTurn?: RolloutMultiTurnInput | undefined;
  agent?: RolloutAgentInput | undefined;
  valKwargs?: RolloutValKwargsInput | undefined;
}

interface RolloutSpeculativeInput {
  /** Guess tokens and check several in one pass; no token or log-prob changes. For few, repetitive sequences. Allowed: true | false. Default: false. */
  enable?: boolean | undefined;
  /** Guessed at once for a sequence, at most; adapts to how many come true. Allowed: integer >= 1 (tokens). Default: 8. */
  maxDraftTokens?: number | undefined;
  /** So many last tokens must have occurred before, in the prompt or a sample of it. Allowed: integer >= 1 (tokens). Default: 3. */
  minNgram?: number | undefined;
  /** Finished samples remembered for each prompt, over steps. Allowed: integer >= 0 (samples). Default: 8. */
  history?: number | undefined;
  /** Guess only while a token takes less time with guesses than without; no token depends on it. Allowed: true | false. Default: true. */
  adapt?: boolean | undefined;
  /** Rows of logits a pass may check; absent = maxNumSeqs, which takes no memory more. Allowed: integer >= 1 (rows). */
  verifyRows?: number | undefined;
}

interface RolloutCheckpointEngineInput {
  /** Weights travel in buckets of this size: one is read while the one before is written. Allowed: 0.0625 to 32 (MiB). Default: 16. */
  updateWeightsBucketMegabytes?: number | undefined;
  /** delta = without buckets whose bytes are as they were sent last, which the sender keeps in host memory to compare. Allowed: whole | delta. Default: "whole". */
  content?: 'whole' | 'delta' | undefined;
  /** Contexts of samples under way, when new weights come: computed again by them, or kept as the old ones computed them. Allowed: recompute | keep. Default: "recompute". */
  kvCache?: 'recompute' | 'keep' | undefined;
}

interface RolloutMultiTurnInput {
  /** Lets the model call tools; false = one answer, tool calls are plain text. Allowed: true | false. Default: true. */
  enable?: boolean | undefined;
  /** Assistant messages a sample may write. Allowed: integer >= 1 (turns). Default: 6. */
  maxAssistantTurns?: number | undefined;
  /** Tool calls a sample may make, over all turns. Allowed: integer >= 1 (calls). Default: 5. */
  maxToolCalls?: number | undefined;
  /** Longer tool output is cut at its end. Allowed: integer >= 1 (characters). Default: 64. */
  maxToolResponseLength?: number | undefined;
  /** Which part of too long tool output goes. Allowed: left | right | middle. Default: "right". */
  toolResponseTruncateSide?: 'left' | 'right' | 'middle' | undefined;
  /** A tool that takes longer answers with an error text. Allowed: > 0 (s). Default: 10. */
  toolTimeoutS?: number | undefined;
  /** A sample that takes longer ends as it is; absent = no limit. Allowed: >= 0 (s). */
  sampleTimeoutS?: number | undefined;
  /** tell = the model reads what is wrong with its call; stop = it ends. Allowed: tell | stop. Default: "tell". */
  onParseError?: 'tell' | 'stop' | undefined;
  /** The same for a tool that throws or takes too long. Allowed: tell | stop. Default: "tell". */
  onToolFailure?: 'tell' | 'stop' | undefined;
  /** How a tool call is written; hermes = <tool_call>{json}</tool_call>. Allowed: hermes | llama3_json | qwen3_coder | glm | gpt-oss | kimi | functiongemma | gemma4. Default: "hermes". */
  format?:
    | 'hermes'
    | 'llama3_json'
    | 'qwen3_coder'
    | 'glm'
    | 'gpt-oss'
    | 'kimi'
    | 'functiongemma'
    | 'gemma4'
    | undefined;
  /** A call that was begun can only go on validly, by the schemas. A step a read-back, or a guess. Allowed: true | false. Default: false. */
  constrainToolCalls?: boolean | undefined;
  /** The template writes the tools' schemas into the prompt; models made for that want it. Allowed: true | false. Default: false. */
  toolSchemasInPrompt?: boolean | undefined;
}

interface RolloutAgentInput {
  /** single_turn, tool_agent, or one registered by registerAgentLoop(). Allowed: text. Default: "tool_agent". */
  defaultAgentLoop?: string | undefined;
  /** A loop of your own that neither generates nor calls tools for so long has failed. Allowed: > 0 (s). Default: 300. */
  timeoutS?: number | undefined;
}

interface RolloutValKwargsInput {
  /** Samples per held-out problem; more narrows the error of pass@1 and gives pass@k. Allowed: integer >= 1 (samples). Default: 1. */
  n?: number | undefined;
  /** 1 = what training samples from; 0 = greedy. Allowed: 0 to 1000000. Default: 1. */
  temperature?: number | undefined;
  /** 0 = off. Allowed: integer >= 0, or -1 = 0 (tokens). Default: 0. */
  topK?: number | undefined;
  /** 1 = off. Allowed: 0.000001 to 1 (probability). Default: 1. */
  topP?: number | undefined;
  /** 0 = off. Allowed: 0 to 1 (share of the largest probability). Default: 0. */
  minP?: number | undefined;
}
