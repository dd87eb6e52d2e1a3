/** A supervised run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

export interface SftConfigInput {
  /** Name of the run; letters, digits, ., _ and -. Allowed: text. Required. */
  name: string;
  /** wgsl = own kernels; tfjs = gradients by autodiff. Allowed: wgsl | tfjs. Default: "wgsl". */
  engine?: 'wgsl' | 'tfjs' | undefined;
  /** Weights, order of the data, mistakes of the demonstrations. Allowed: integer >= 0. Default: 1. */
  seed?: number | undefined;
  model?: SftModelInput | undefined;
  task?: SftTaskInput | undefined;
  data?: SftDataInput | undefined;
  optim?: SftOptimInput | undefined;
  trainer?: SftTrainerInput | undefined;
}

interface SftModelInput {
  /** Checkpoint to start from; absent = fresh weights of the sizes below. Allowed: text. */
  path?: string | undefined;
  /** Folder with tokenizer.json and tokenizer_config.json; absent = one trained on the task's text. Allowed: text. */
  tokenizerPath?: string | undefined;
  /** File of a Jinja chat template that replaces the one of the tokenizer; the checkpoint is saved with it. Allowed: text. */
  customChatTemplate?: string | undefined;
  /** Of a tokenizer trained here. Allowed: integer >= 260 (tokens). Default: 512. */
  vocabSize?: number | undefined;
  /** Width; with 3 layers about 0.4 M parameters, enough for the small tasks. Allowed: integer >= 1 (channels). Default: 96. */
  hiddenSize?: number | undefined;
  /** MLP width. Allowed: integer >= 1 (channels). Default: 288. */
  intermediateSize?: number | undefined;
  /** Depth of the model. Allowed: integer >= 1 (layers). Default: 3. */
  numHiddenLayers?: number | undefined;
  /** Query heads; must divide hiddenSize into even parts. Allowed: integer >= 1 (heads). Default: 4. */
  numAttentionHeads?: number | undefined;
  /** Key and value heads; must divide numAttentionHeads. Allowed: integer >= 1 (heads). Default: 4. */
  numKeyValueHeads?: number | undefined;
  /** Standard deviation of fresh weights. Allowed: > 0. Default: 0.02. */
  initializerRange?: number | undefined;
  /** Longest sequence. Allowed: integer >= 1 (tokens). Default: 512. */
  maxPositionEmbeddings?: number | undefined;
}

interface SftTaskInput {
  /** Which task writes the traces. Allowed: text. Default: "gsm8k". */
  name?: string | undefined;
  /** In place of name: a module whose default export is the task, as a file (.js, .ts; relative to the working folder), a package's name, or https://... Allowed: text. */
  module?: string | undefined;
  /** Run the module in a sandbox, without network, files and environment; absent = true for an address, false for a file or package. Allowed: true | false. */
  isolated?: boolean | undefined;
  /** One call of a module in the sandbox may take so long, before it is ended. Allowed: > 0 (s). Default: 10. */
  timeoutS?: number | undefined;
  /** JSONL file of problems; absent = the task generates its own. Allowed: text. */
  path?: string | undefined;
  /** JSONL file of held-out problems. Allowed: text. */
  valPath?: string | undefined;
  /** The task's own settings, checked by the task. Allowed: named values. Default: {}. */
  options?: Record<string, string | number | boolean> | undefined;
}

interface SftDataInput {
  /** Traces an update. Allowed: integer >= 1 (traces). Default: 48. */
  trainBatchSize?: number | undefined;
  /** A longer trace is refused, never cut. Allowed: integer >= 1 (tokens). Default: 320. */
  maxLength?: number | undefined;
  /** Variables that the chat template gets beside the messages. Allowed: named values. Default: {}. */
  chatTemplateKwargs?: Record<string, string | number | boolean> | undefined;
  /** Tokens a micro-batch at most. Memory only. Allowed: integer >= 1 (tokens). Default: 8192. */
  maxTokenLenPerGpu?: number | undefined;
  /** Held-out problems an evaluation uses. Allowed: integer >= 1 (problems). Default: 256. */
  valMaxSamples?: number | undefined;
  demonstrations?: SftDataDemonstrationsInput | undefined;
}

interface SftDataDemonstrationsInput {
  /** The question's last number is stated as the answer, without a tool call. Allowed: 0 to 1 (probability). Default: 0. */
  guessRate?: number | undefined;
  /** First operation swapped for its opposite. Allowed: 0 to 1 (probability). Default: 0. */
  firstOperationErrorRate?: number | undefined;
  /** Template ids, joined by commas, whose first operation is swapped; absent = all. Allowed: text. */
  swappedTemplates?: string | undefined;
  /** Any later operand or operation wrong. Allowed: 0 to 1 (probability). Default: 0. */
  laterErrorRate?: number | undefined;
}

interface SftOptimInput {
  /** SGD and SignSGD keep no moments. Muon is for the matrices of the layers, with AdamW for the rest. In any case of letters. Allowed: AdamW | SGD | SignSGD | Muon. Default: "AdamW". */
  optimizer?: string | undefined;
  /** Of SGD and Muon; absent = none for SGD, 0.95 for Muon. Allowed: 0 to 0.9999. */
  momentum?: number | undefined;
  /** Of SGD and Muon; absent = false for SGD, true for Muon. Allowed: true | false. */
  nesterov?: boolean | undefined;
  /** Muon: by what a matrix's shape changes its rate. match_rms_adamw = 0.2 sqrt(max(out, in)), for rates found with AdamW. Allowed: original | match_rms_adamw. Default: "match_rms_adamw". */
  adjustLrFn?: 'original' | 'match_rms_adamw' | undefined;
  /** Peak rate for a fresh small model. Allowed: > 0. Default: 0.003. */
  lr?: number | undefined;
  /** Decay of the two moments. Allowed: two numbers in [0, 1). Default: [0.9,0.95]. */
  betas?: [number, number] | undefined;
  /** Added to the root of the second moment. Allowed: > 0. Default: 1e-8. */
  eps?: number | undefined;
  /** Of every trained value; decoupled, but for SGD. Allowed: >= 0. Default: 0. */
  weightDecay?: number | undefined;
  /** Largest global L2 norm; 0 = no clipping. Allowed: >= 0. Default: 1. */
  gradClip?: number | undefined;
  /** cosine and linear fall to 0 at the last step. Allowed: constant | cosine | linear. Default: "cosine". */
  lrSchedulerType?: 'constant' | 'cosine' | 'linear' | undefined;
  /** Linear rise from 0 to lr; 0 where the next key is written alone. Allowed: integer >= 0, or -1 = 0 (updates). Default: 20. */
  lrWarmupSteps?: number | undefined;
  /** The same as a share; lrWarmupSteps above 0 wins. Allowed: 0 to 1 (share of all updates). Default: 0. */
  lrWarmupStepsRatio?: number | undefined;
}

interface SftTrainerInput {
  /** Updates in all. Allowed: integer >= 1 (updates). Default: 330. */
  totalTrainingSteps?: number | undefined;
  /** The run folder is <defaultLocalDir>/<name>. Allowed: text. Default: "runs". */
  defaultLocalDir?: string | undefined;
  /** Where metrics go. metrics.jsonl is written in any case: reports and resumed runs read it. Allowed: some of console, jsonl, csv, tensorboard. Default: ["console","jsonl"]. */
  logger?: 'console' | 'jsonl' | 'csv' | 'tensorboard' | ('console' | 'jsonl' | 'csv' | 'tensorboard')[] | undefined;
}
