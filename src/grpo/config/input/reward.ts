/** `reward` of a training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

import type { RubricInput } from '../../../tasks/rewards/rubric/parse.ts';

export interface RewardInput {
  overlongBuffer?: RewardOverlongBufferInput | undefined;
  /** Of the task's named rewards, e.g. {format: 0.1}: in place of the weight that the task gives, or added to its score. Allowed: named numbers. Default: {}. */
  weights?: Record<string, number> | undefined;
  /** The task's reward of a sample may take so long; see trainer.onError for one that does. Allowed: > 0 (s). Default: 300. */
  timeoutS?: number | undefined;
  /** Weight of the task's own score; the models' are added to it. Allowed: any number. Default: 1. */
  ruleWeight?: number | undefined;
  /** Named criteria that the judge decides, added to the score by their weights; see docs/rubrics.md. Absent = none. Allowed: path, or its criteria. */
  rubric?: string | RubricInput | undefined;
  judge?: RewardJudgeInput | undefined;
  model?: RewardModelInput | undefined;
}

interface RewardOverlongBufferInput {
  /** Penalty grows over the last tokens before the limit (DAPO); 0 = off. Allowed: integer >= 0 (tokens). Default: 0. */
  len?: number | undefined;
  /** Penalty at the limit itself. Allowed: >= 0 (reward). Default: 1. */
  penaltyFactor?: number | undefined;
}

interface RewardJudgeInput {
  /** Of a score from 0 to 1 that the judge says; 0 = not asked for one. Allowed: any number. Default: 0. */
  weight?: number | undefined;
  /** Chat model for transformers.js (ONNX), a folder or a name; absent = the reference weights, on our own engine. Allowed: text. */
  path?: string | undefined;
  /** Checkpoint folder or run of another model that judges, frozen, on our own engine; absent = the reference weights. Allowed: text. */
  checkpoint?: string | undefined;
  /** What it reads, with {question}, {response} and {answer}; it replies with a number. Allowed: text. Default: "Question:\n{question}\n\nAnswer:\n{response}\n\nHow good is the answer, from 0 to 10? Reply with the number.". */
  prompt?: string | undefined;
  /** The number that counts as 1; others out of 0 to this count as 0. Allowed: > 0. Default: 10. */
  max?: number | undefined;
  /** A sample whose prompt is longer is not judged; of a rubric, with its longest reply. Allowed: integer >= 1 (tokens). Default: 512. */
  maxPromptLength?: number | undefined;
  /** Room for its reply, drawn greedily. Allowed: integer >= 1 (tokens). Default: 16. */
  maxNewTokens?: number | undefined;
  /** Samples judged at once; bounds the KV cache of a judge on our own engine. Allowed: integer >= 1 (sequences). Default: 16. */
  maxNumSeqs?: number | undefined;
}

interface RewardModelInput {
  /** Text classifier for transformers.js, a folder or a name; absent = none. Allowed: text. */
  path?: string | undefined;
  /** The label whose probability is the score; absent = the likeliest. One output: its sigmoid. Allowed: text. */
  label?: string | undefined;
  /** Of that probability. Allowed: any number. Default: 1. */
  weight?: number | undefined;
}
