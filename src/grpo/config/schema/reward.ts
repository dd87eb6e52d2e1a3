/** Config part `reward`: weights of the task's named rewards, and models that also score samples. */

import * as v from 'valibot';
import { JUDGE_PROMPT } from '../../../tasks/rewards/judgePrompt.ts';
import { count, namedNumbers, number, optionalPathOr, text, part, positive, ANY } from '../keys.ts';

/** A rubric as a user writes it. */
export interface RubricInput {
  /** Default: `RUBRIC_PROMPT`. */
  prompt?: string | undefined;
  /** Criteria, at least one. */
  criteria: readonly CriterionInput[];
}

/** A criterion as a user writes it. */
export interface CriterionInput {
  /** Name of the criterion, also in its metric `reward/<name>/mean`. */
  name: string;
  /** Weight of the criterion's score in the reward. Default: 1. */
  weight?: number | undefined;
  /** Question about the sample that the judge answers. */
  description: string;
  /** Possible replies with their scores, or a scale of integers: '1..5' scores 0, 0.25, ..., 1. Default: { yes: 1, no: 0 }. */
  choices?: string | Readonly<Record<string, number>> | undefined;
  /** Limits the criterion to samples of problems that have this `dataSource`, or one of these. */
  when?: { dataSource: string | readonly string[] } | undefined;
}

export const reward = part({
  overlongBuffer: v.optional(
    part({
      len: count(0, 'tokens', {
        why: 'Tokens before the limit over which the penalty grows (DAPO). 0 = off.',
        min: 0,
        verl: 'reward.reward_kwargs.overlong_buffer_cfg.len',
      }),
      penaltyFactor: number(1, ANY, 'reward', {
        why: 'Penalty at the limit.',
        verl: 'reward.reward_kwargs.overlong_buffer_cfg.penalty_factor',
      }),
    }),
    {},
  ),
  weights: namedNumbers(
    "Weights of the task's named rewards, e.g. {format: 0.1}. Each replaces the task's weight, or adds the reward to the score.",
  ),
  timeoutS: positive(
    300,
    's',
    "Time limit of the task's reward for one sample, after which trainer.onError decides; and of a loss that returns a promise.",
  ),
  ruleWeight: number(
    1,
    [-Infinity, Infinity],
    '',
    "Weight of the task's own score. The models' scores are added to it.",
  ),
  rubric: optionalPathOr<RubricInput>(
    'Named criteria that the judge decides, added to the score with their weights; see docs/guides/rewards.md. Default: no rubric.',
    'its criteria',
  ),
  judge: v.optional(
    part({
      weight: number(
        0,
        [-Infinity, Infinity],
        '',
        "Weight of the judge's score from 0 to 1. 0 = the judge returns no score.",
      ),
      path: text(
        undefined,
        'Chat model for transformers.js (ONNX), a folder or a name. Default: the reference weights, on our own engine.',
      ),
      checkpoint: text(
        undefined,
        'Checkpoint folder or run of another model that judges, frozen, on our own engine. Default: the reference weights.',
      ),
      prompt: text(
        JUDGE_PROMPT,
        'Prompt of the judge, with {question}, {response} and {answer}. The judge must reply with a number.',
      ),
      max: positive(10, '', 'Reply that counts as score 1. Numbers outside 0 to max count as 0.'),
      maxPromptLength: count(
        512,
        'tokens',
        "Longest judge prompt; for a rubric, prompt plus a criterion's longest reply. A sample with a longer one is not judged.",
      ),
      maxNewTokens: count(16, 'tokens', "Maximum number of tokens of the judge's reply, which is greedy."),
      maxNumSeqs: count(
        16,
        'sequences',
        'Samples judged at the same time. Limits the KV cache of a judge on our own engine.',
      ),
    }),
    {},
  ),
  model: v.optional(
    part({
      path: text(undefined, 'Text classifier for transformers.js, a folder or a name. Default: no classifier.'),
      label: text(
        undefined,
        'Label whose probability is the score. Default: the most likely one; for a model with one output, its sigmoid.',
      ),
      weight: number(1, [-Infinity, Infinity], '', "Weight of the label's probability in the reward."),
    }),
    {},
  ),
});
