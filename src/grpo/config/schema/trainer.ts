/**
 * Length of a run, and what it evaluates, saves and logs.
 */

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
  metric: requiredText('Name of a metric as metrics.jsonl has it, e.g. val-core/countdown/acc/mean@1.'),
  atLeast: number(undefined, [-Infinity, Infinity], '', 'The run is done when the metric is at least this ...'),
  atMost: number(undefined, [-Infinity, Infinity], '', '... or at most this.'),
});

/** Destinations of the metrics: of a training run, and of a supervised one. */
export const logger = names(['console', 'jsonl'], ['console', 'jsonl', 'csv', 'tensorboard'], {
  why: 'Where metrics go. metrics.jsonl is written in any case: reports and resumed runs read it.',
  verl: '=',
  trl: 'report_to',
});

export const trainer = part({
  totalTrainingSteps: count(60, 'steps', {
    why: 'Rollout batches to train on.',
    min: 0,
    verl: '=',
    trl: 'max_steps',
    note: "TRL's step is an update, ours and verl's a batch of rollouts",
  }),
  totalEpochs: count(undefined, 'epochs', {
    why: 'Length of the run as passes over the training problems, in whole batches; totalTrainingSteps wins where it is written.',
    verl: '=',
    trl: 'num_train_epochs',
  }),
  stopWhen: v.optional(stopWhen),
  pipeline: choice(
    'on-policy',
    ['on-policy', 'one-step-off', 'fully-async'],
    'on-policy = generate, then train; one-step-off = the next batch is generated while a step trains; fully-async = both go on all the time, as asyncTraining says. docs/guides/pipelines.md.',
  ),
  placement: choice(
    'colocated',
    ['colocated', 'split'],
    'colocated = training and rollout on one device; split = on two of this machine, to which weights travel as rollout.checkpointEngine says.',
  ),
  testFreq: countOrOff(20, 'steps', {
    why: 'Evaluate every so many; 0 = only before and after.',
    verl: '=',
    trl: 'eval_steps',
    note: 'off is 0; -1 is read as well',
  }),
  saveFreq: countOrOff(0, 'steps', {
    why: 'Checkpoint every so many; 0 = only by saveMinutes, at the end and on Ctrl-C.',
    verl: '=',
    trl: 'save_steps',
    note: 'off is 0; -1 is read as well',
  }),
  saveMinutes: number(
    30,
    ANY,
    'minutes',
    'Checkpoint when so many have passed since the last; the next one takes its place. 0 = off.',
  ),
  valBeforeTrain: flag(true, {
    why: 'Evaluate at step 0, so that there is something to compare with.',
    verl: '=',
    trl: 'eval_on_start',
  }),
  profile: flag(true, 'Write what every sample spent its time on, for webgrpo profile.'),
  profileGpu: flag(false, 'The profile also says how long the GPU computed, where the adapter has timestamps.'),
  logRollouts: count(8, 'samples', { why: 'Sampled rollouts written per step, for reading; 0 = none.', min: 0 }),
  keepRollouts: flagOrCount(
    false,
    'steps',
    'Keep every sample of a step with its tokens, log-probs and rewards, for webgrpo replay; a number = of the last so many steps.',
  ),
  logValGenerations: count(0, 'samples', {
    why: 'Answers of each evaluation written beside them; 0 = none.',
    min: 0,
    verl: '=',
  }),
  defaultLocalDir: text('runs', {
    why: 'The run folder is <defaultLocalDir>/<name>.',
    verl: 'trainer.default_local_dir',
    trl: 'output_dir',
  }),
  refUpdateFreq: count(0, 'steps', {
    why: 'Refresh the reference of KL terms from the policy every so many; 0 = never.',
    min: 0,
    trl: 'ref_model_sync_steps',
  }),
  refMixupAlpha: number(1, SHARE, '', {
    why: 'Share of the policy in a refreshed reference; 1 = a copy.',
    trl: 'ref_model_mixup_alpha',
  }),
  kernelTuning: text(
    'auto',
    'auto = time the kernels once where the built-in choice was not measured; off = built in; or a file of webgrpo tune.',
  ),
  logger,
  resumeMode: choice('disable', ['disable', 'auto', 'resume_path'], {
    why:
      'disable = from scratch, an earlier run of the name is kept under another; auto = from the newest checkpoint in the run ' +
      'folder, if there is one; resume_path = from resumeFromPath.',
    verl: '=',
    trl: 'resume_from_checkpoint',
  }),
  resumeFromPath: text(undefined, {
    why: 'Checkpoint or run folder to go on from; read where resumeMode is resume_path.',
    verl: '=',
  }),
  onError: choice(
    'stop',
    ['stop', 'skip'],
    'A sample whose reward, agent loop or tool parser fails: stop = the run ends; skip = the sample has no reward, counted in ' +
      'training/faulty_samples.',
  ),
  maxActorCkptToKeep: count(undefined, 'checkpoints', {
    why: 'The newest that are kept, older ones are deleted; absent = all. The best one by metricForBestModel is kept besides.',
    verl: '=',
    trl: 'save_total_limit',
  }),
  metricForBestModel: text(undefined, {
    why: 'Save a checkpoint whenever this metric is at its best, e.g. val-core/gsm8k-tool/acc/mean@1; absent = off.',
    trl: 'metric_for_best_model',
  }),
  greaterIsBetter: flag(undefined, {
    why: "Of that metric; absent = true, but false where its name ends in 'loss'.",
    trl: 'greater_is_better',
  }),
});
