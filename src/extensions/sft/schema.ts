/** Schema of a supervised run's YAML (`webgrpo sft`), which trains the start model of a GRPO run. */

import * as v from 'valibot';
import { taskModule } from '../../grpo/config/schema/data.ts';
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
} from '../../grpo/config/keys.ts';
import { optimizerKeys } from '../../grpo/config/schema/actor.ts';
import { logger } from '../../grpo/config/schema/trainer.ts';

const model = part({
  path: text(
    undefined,
    'Checkpoint to start from. Default: randomly initialised weights of the sizes that the other keys of `model` set.',
  ),
  tokenizerPath: text(
    undefined,
    "Folder with tokenizer.json and tokenizer_config.json. Default: a tokenizer trained on the task's text.",
  ),
  customChatTemplate: text(
    undefined,
    "File with a Jinja chat template that replaces the tokenizer's. The checkpoint is saved with it.",
  ),
  vocabSize: count(512, 'tokens', { why: 'Vocabulary size of a tokenizer trained here.', min: 260 }),
  hiddenSize: count(
    96,
    'channels',
    'Hidden size. With 3 layers the model has about 0.4 M parameters, enough for the recipe gsm8k-tool.',
  ),
  intermediateSize: count(288, 'channels', 'MLP width.'),
  numHiddenLayers: count(3, 'layers', 'Depth of the model.'),
  numAttentionHeads: count(4, 'heads', 'Query heads; must divide hiddenSize into even parts.'),
  numKeyValueHeads: count(4, 'heads', 'Key and value heads; must divide numAttentionHeads.'),
  initializerRange: positive(0.02, '', 'Standard deviation of randomly initialised weights.'),
  maxPositionEmbeddings: count(512, 'tokens', 'Longest sequence.'),
});

const demonstrations = part({
  guessRate: number(
    0,
    SHARE,
    'probability',
    "Rate of traces that state the question's last number as the answer, without a tool call. Only for the task gsm8k.",
  ),
  firstOperationErrorRate: number(
    0,
    SHARE,
    'probability',
    'Rate of traces whose first operation is swapped for its opposite. Only for the task gsm8k.',
  ),
  swappedTemplates: text(
    undefined,
    'Ids of the problem templates, joined by commas, to which firstOperationErrorRate applies; others use laterErrorRate. Only for the task gsm8k. Default: all.',
  ),
  laterErrorRate: number(0, SHARE, 'probability', 'Rate of a wrong operand or operation in each later step.'),
});

export const SFT_SCHEMA = part({
  name: requiredText('Name of the run; letters, digits, ., _ and -.'),
  engine: choice('wgsl', ['wgsl', 'tfjs'], 'wgsl = our own kernels; tfjs = gradients by autodiff.'),
  seed: count(1, '', {
    why: 'Seed of the weights, the order of the data, and the mistakes in demonstrations.',
    min: 0,
  }),
  model: v.optional(model, {}),
  task: v.optional(
    part({
      name: text('gsm8k', 'Task that writes the traces.'),
      ...taskModule,
      path: text(undefined, 'JSONL file of problems. Default: the task generates its own.'),
      valPath: text(undefined, 'JSONL file of held-out problems.'),
      options: options('Settings of the task, which checks them.'),
    }),
    {},
  ),
  data: v.optional(
    part({
      trainBatchSize: count(48, 'traces', 'Traces per update.'),
      maxLength: count(
        320,
        'tokens',
        'Longest trace (prompt and demonstrated answer). A longer one is refused, never truncated.',
      ),
      chatTemplateKwargs: options('Additional variables of the chat template.'),
      maxTokenLenPerGpu: count(8192, 'tokens', 'Maximum number of tokens per micro-batch. Changes memory only.'),
      valMaxSamples: count(256, 'problems', 'Held-out problems per evaluation.'),
      demonstrations: v.optional(demonstrations, {}),
    }),
    {},
  ),
  optim: v.optional(
    part({
      ...optimizerKeys,
      lr: positive(3e-3, '', 'Peak learning rate. The default suits a small model trained from scratch.'),
      betas: pair([0.9, 0.95], [0, 1], 'Decay of the two moments.'),
      eps: positive(1e-8, '', 'Added to the root of the second moment.'),
      weightDecay: number(0, ANY, '', 'Decay of every trained value; decoupled, except for SGD.'),
      gradClip: number(1, ANY, '', 'Largest global L2 norm of the gradient. 0 = no clipping.'),
      lrSchedulerType: choice(
        'cosine',
        ['constant', 'cosine', 'linear'],
        'Schedule of the learning rate. cosine and linear fall to 0 at the last step.',
      ),
      lrWarmupSteps: countOrOff(
        20,
        'updates',
        'Updates of the linear rise from 0 to lr. Default: 0 if only lrWarmupStepsRatio is set, a tenth in runs of 20 steps or fewer.',
      ),
      lrWarmupStepsRatio: number(
        0,
        SHARE,
        'share of all updates',
        'Warm-up as a share of all updates. lrWarmupSteps above 0 wins.',
      ),
    }),
    {},
  ),
  trainer: v.optional(
    part({
      totalTrainingSteps: count(330, 'updates', 'Number of updates.'),
      defaultLocalDir: text('runs', 'Parent folder of runs. The run folder is <defaultLocalDir>/<name>.'),
      logger,
    }),
    {},
  ),
});

export type SftConfig = v.InferOutput<typeof SFT_SCHEMA>;

/** True if the task is the shipped GSM8K, which has its own demonstrations and tokenizer. */
export const isGsm8k = ({ name, module }: { name: string; module?: string | undefined }): boolean =>
  name === 'gsm8k' && module === undefined;
