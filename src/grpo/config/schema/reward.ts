/**
 * Weights of the task's named rewards, and models that also score samples; see modelRewards.ts.
 */

import * as v from 'valibot';
import { JUDGE_PROMPT } from '../../../tasks/rewards/judgePrompt.ts';
import type { RubricInput } from '../../../tasks/rewards/rubric/parse.ts';
import { count, namedNumbers, number, optionalPathOr, text, part, positive, ANY } from '../keys.ts';

export const reward = part({
  overlongBuffer: v.optional(
    part({
      len: count(0, 'tokens', {
        why: 'Penalty grows over the last tokens before the limit (DAPO); 0 = off.',
        min: 0,
        verl: 'reward.reward_kwargs.overlong_buffer_cfg.len',
      }),
      penaltyFactor: number(1, ANY, 'reward', {
        why: 'Penalty at the limit itself.',
        verl: 'reward.reward_kwargs.overlong_buffer_cfg.penalty_factor',
      }),
    }),
    {},
  ),
  weights: namedNumbers(
    "Of the task's named rewards, e.g. {format: 0.1}: in place of the weight that the task gives, or added to its score.",
  ),
  timeoutS: positive(
    300,
    's',
    "The task's reward of a sample may take so long; see trainer.onError for one that does.",
  ),
  ruleWeight: number(1, [-Infinity, Infinity], '', "Weight of the task's own score; the models' are added to it."),
  rubric: optionalPathOr<RubricInput>(
    'Named criteria that the judge decides, added to the score by their weights; see docs/guides/rewards.md. Absent = none.',
    'its criteria',
  ),
  judge: v.optional(
    part({
      weight: number(
        0,
        [-Infinity, Infinity],
        '',
        'Of a score from 0 to 1 that the judge says; 0 = not asked for one.',
      ),
      path: text(
        undefined,
        'Chat model for transformers.js (ONNX), a folder or a name; absent = the reference weights, on our own engine.',
      ),
      checkpoint: text(
        undefined,
        'Checkpoint folder or run of another model that judges, frozen, on our own engine; absent = the reference weights.',
      ),
      prompt: text(JUDGE_PROMPT, 'What it reads, with {question}, {response} and {answer}; it replies with a number.'),
      max: positive(10, '', 'The number that counts as 1; others out of 0 to this count as 0.'),
      maxPromptLength: count(
        512,
        'tokens',
        'A sample whose prompt is longer is not judged; of a rubric, with its longest reply.',
      ),
      maxNewTokens: count(16, 'tokens', 'Room for its reply, drawn greedily.'),
      maxNumSeqs: count(16, 'sequences', 'Samples judged at once; bounds the KV cache of a judge on our own engine.'),
    }),
    {},
  ),
  model: v.optional(
    part({
      path: text(undefined, 'Text classifier for transformers.js, a folder or a name; absent = none.'),
      label: text(
        undefined,
        'The label whose probability is the score; absent = the likeliest. One output: its sigmoid.',
      ),
      weight: number(1, [-Infinity, Infinity], '', 'Of that probability.'),
    }),
    {},
  ),
});
