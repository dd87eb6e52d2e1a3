/** Config part `trainer`: length of a run, and its evaluations, checkpoints and logs. */

import * as v from 'valibot';
import {
  ANY,
  choice,
  count,
  countOrOff,
  flag,
  flagOrCount,
  names,
  number,
  text,
  part,
  requiredText,
  SHARE,
} from '../keys.ts';

const stopWhen = part({
  metric: requiredText('Name of a metric in metrics.jsonl, e.g. val-core/countdown/acc/mean@1.'),
  atLeast: number(undefined, [-Infinity, Infinity], '', 'The run ends when the metric is at least this.'),
  atMost: number(undefined, [-Infinity, Infinity], '', 'The run ends when the metric is at most this.'),
});

/** Names of the loggers that receive metrics: of a training run, and of a supervised run. */
export const logger = names(['console', 'jsonl'], ['console', 'jsonl', 'csv', 'tensorboard'], {
  why: 'Destinations of the metrics. metrics.jsonl is always written, because reports and resumed runs read it.',
  verl: '=',
  trl: 'report_to',
});

export const trainer = part({
  totalTrainingSteps: count(60, 'steps', {
    why: 'Length of the run in steps. A step trains on one rollout batch.',
    min: 0,
    verl: '=',
    trl: 'max_steps',
    note: "TRL's step is an update, ours and verl's a batch of rollouts",
  }),
  totalEpochs: count(undefined, 'epochs', {
    why: 'Length of the run in passes over the training problems, in full batches. totalTrainingSteps wins if it is set.',
    verl: '=',
    trl: 'num_train_epochs',
  }),
  stopWhen: v.optional(stopWhen),
  pipeline: choice(
    'on-policy',
    ['on-policy', 'one-step-off', 'fully-async'],
    'on-policy = generate, then train; one-step-off = the next batch is generated while a step trains; fully-async = both always run, as set by asyncTraining. See docs/guides/pipelines.md.',
  ),
  placement: choice(
    'colocated',
    ['colocated', 'split'],
    'colocated = training and rollout on one device. split = on two devices of this machine; rollout.checkpointEngine sets how weights are sent.',
  ),
  testFreq: countOrOff(20, 'steps', {
    why: 'Steps between two evaluations. 0 = only before and after the run.',
    verl: '=',
    trl: 'eval_steps',
    note: 'off is 0; -1 is also accepted',
  }),
  saveFreq: countOrOff(0, 'steps', {
    why: 'Steps between two checkpoints. 0 = only by saveMinutes, at the end and on Ctrl-C.',
    verl: '=',
    trl: 'save_steps',
    note: 'off is 0; -1 is also accepted',
  }),
  saveMinutes: number(
    30,
    ANY,
    'minutes',
    'Minutes after which a checkpoint is saved; the next checkpoint replaces it. 0 = off.',
  ),
  valBeforeTrain: flag(true, {
    why: 'Evaluate at step 0, as a baseline.',
    verl: '=',
    trl: 'eval_on_start',
  }),
  profile: flag(true, 'Record how every sample spends its time, for webgrpo profile.'),
  profileGpu: flag(false, 'Also record the GPU time in the profile, if the adapter has timestamps.'),
  logRollouts: count(8, 'samples', { why: 'Sampled rollouts logged per step, for reading. 0 = off.', min: 0 }),
  keepRollouts: flagOrCount(
    false,
    'steps',
    'Save every sample of a step with its tokens, log-probs and rewards, for webgrpo replay. A number N keeps only the last N steps.',
  ),
  logValGenerations: count(0, 'samples', {
    why: 'Answers logged per evaluation. 0 = off.',
    min: 0,
    verl: '=',
  }),
  defaultLocalDir: text('runs', {
    why: 'Parent folder of runs. The run folder is <defaultLocalDir>/<name>.',
    verl: 'trainer.default_local_dir',
    trl: 'output_dir',
  }),
  refUpdateFreq: count(0, 'steps', {
    why: 'Steps between two refreshes of the KL reference from the policy. 0 = never.',
    min: 0,
    trl: 'ref_model_sync_steps',
  }),
  refMixupAlpha: number(1, SHARE, '', {
    why: 'Share of the policy in a refreshed reference; 1 = a copy.',
    trl: 'ref_model_mixup_alpha',
  }),
  kernelTuning: text(
    'auto',
    'auto = time the kernels once if the built-in choice was not measured on this adapter. off = use the built-in choice; otherwise a file of webgrpo tune.',
  ),
  logger,
  resumeMode: choice('disable', ['disable', 'auto', 'resume_path'], {
    why:
      'disable = start from scratch and rename an earlier run of the name; auto = resume from the newest checkpoint in the run ' +
      'folder, if it has one; resume_path = resume from resumeFromPath.',
    verl: '=',
    trl: 'resume_from_checkpoint',
  }),
  resumeFromPath: text(undefined, {
    why: 'Checkpoint or run folder to resume from. Read only if resumeMode is resume_path.',
    verl: '=',
  }),
  onError: choice(
    'stop',
    ['stop', 'skip'],
    'Effect of a failing reward, agent loop or tool parser: stop = the run ends; skip = the sample has no reward and is counted in ' +
      'training/faulty_samples.',
  ),
  maxActorCkptToKeep: count(undefined, 'checkpoints', {
    why: 'Number of newest checkpoints to keep; older ones are deleted. Default: all; the best one by metricForBestModel is always kept.',
    verl: '=',
    trl: 'save_total_limit',
  }),
  metricForBestModel: text(undefined, {
    why: 'Save a checkpoint whenever this metric is at its best, e.g. val-core/gsm8k-tool/acc/mean@1. Default: off.',
    trl: 'metric_for_best_model',
  }),
  greaterIsBetter: flag(undefined, {
    why: "True if higher values of metricForBestModel are better. Default: false if its name ends in 'loss', otherwise true.",
    trl: 'greater_is_better',
  }),
});
