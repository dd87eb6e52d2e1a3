/**
 * Schema of a supervised run's YAML (`webgrpo sft`), which gives GRPO its warm start.
 */

import * as v from 'valibot';
import { taskModule } from './schema/data.ts';
import {
  ANY,
  SHARE,
  choice,
  count,
  countOrOff,
  number,
  text,
  options,
  pair,
  part,
  positive,
  requiredText,
} from './keys.ts';
import { optimizerKeys } from './schema/actor.ts';
import { logger } from './schema/trainer.ts';

const model = part({
  path: text(undefined, 'Checkpoint to start from; absent = fresh weights of the sizes below.'),
  tokenizerPath: text(
    undefined,
    "Folder with tokenizer.json and tokenizer_config.json; absent = one trained on the task's text.",
  ),
  customChatTemplate: text(
    undefined,
    'File of a Jinja chat template that replaces the one of the tokenizer; the checkpoint is saved with it.',
  ),
  vocabSize: count(512, 'tokens', { why: 'Of a tokenizer trained here.', min: 260 }),
  hiddenSize: count(96, 'channels', 'Width; with 3 layers about 0.4 M parameters, enough for the small tasks.'),
  intermediateSize: count(288, 'channels', 'MLP width.'),
  numHiddenLayers: count(3, 'layers', 'Depth of the model.'),
  numAttentionHeads: count(4, 'heads', 'Query heads; must divide hiddenSize into even parts.'),
  numKeyValueHeads: count(4, 'heads', 'Key and value heads; must divide numAttentionHeads.'),
  initializerRange: positive(0.02, '', 'Standard deviation of fresh weights.'),
  maxPositionEmbeddings: count(512, 'tokens', 'Longest sequence.'),
});

const demonstrations = part({
  guessRate: number(
    0,
    SHARE,
    'probability',
    "The question's last number is stated as the answer, without a tool call.",
  ),
  firstOperationErrorRate: number(0, SHARE, 'probability', 'First operation swapped for its opposite.'),
  swappedTemplates: text(undefined, 'Template ids, joined by commas, whose first operation is swapped; absent = all.'),
  laterErrorRate: number(0, SHARE, 'probability', 'Any later operand or operation wrong.'),
});

export const SFT_SCHEMA = part({
  name: requiredText('Name of the run; letters, digits, ., _ and -.'),
  engine: choice('wgsl', ['wgsl', 'tfjs'], 'wgsl = own kernels; tfjs = gradients by autodiff.'),
  seed: count(1, '', { why: 'Weights, order of the data, mistakes of the demonstrations.', min: 0 }),
  model: v.optional(model, {}),
  task: v.optional(
    part({
      name: text('gsm8k', 'Which task writes the traces.'),
      ...taskModule,
      path: text(undefined, 'JSONL file of problems; absent = the task generates its own.'),
      valPath: text(undefined, 'JSONL file of held-out problems.'),
      options: options("The task's own settings, checked by the task."),
    }),
    {},
  ),
  data: v.optional(
    part({
      trainBatchSize: count(48, 'traces', 'Traces an update.'),
      maxLength: count(320, 'tokens', 'A longer trace is refused, never cut.'),
      chatTemplateKwargs: options('Variables that the chat template gets beside the messages.'),
      maxTokenLenPerGpu: count(8192, 'tokens', 'Tokens a micro-batch at most. Memory only.'),
      valMaxSamples: count(256, 'problems', 'Held-out problems an evaluation uses.'),
      demonstrations: v.optional(demonstrations, {}),
    }),
    {},
  ),
  optim: v.optional(
    part({
      ...optimizerKeys,
      lr: positive(3e-3, '', 'Peak rate for a fresh small model.'),
      betas: pair([0.9, 0.95], [0, 1], 'Decay of the two moments.'),
      eps: positive(1e-8, '', 'Added to the root of the second moment.'),
      weightDecay: number(0, ANY, '', 'Of every trained value; decoupled, but for SGD.'),
      gradClip: number(1, ANY, '', 'Largest global L2 norm; 0 = no clipping.'),
      lrSchedulerType: choice(
        'cosine',
        ['constant', 'cosine', 'linear'],
        'cosine and linear fall to 0 at the last step.',
      ),
      lrWarmupSteps: countOrOff(20, 'updates', 'Linear rise from 0 to lr; 0 where the next key is written alone.'),
      lrWarmupStepsRatio: number(0, SHARE, 'share of all updates', 'The same as a share; lrWarmupSteps above 0 wins.'),
    }),
    {},
  ),
  trainer: v.optional(
    part({
      totalTrainingSteps: count(330, 'updates', 'Updates in all.'),
      defaultLocalDir: text('runs', 'The run folder is <defaultLocalDir>/<name>.'),
      logger,
    }),
    {},
  ),
});

export type SftConfig = v.InferOutput<typeof SFT_SCHEMA>;
