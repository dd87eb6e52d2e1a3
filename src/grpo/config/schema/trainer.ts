/** The length of a run, what it evaluates, saves and logs. */

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

/** Where metrics go: of a training run, and of a supervised one. */
export const logger = names(
  ['console', 'jsonl'],
  ['console', 'jsonl', 'csv', 'tensorboard'],
  'Where metrics go. metrics.jsonl is written in any case: reports and resumed runs read it.',
);

export const trainer = part({
  totalTrainingSteps: count(60, 'steps', { why: 'Rollout batches to train on.', min: 0 }),
  totalEpochs: count(
    undefined,
    'epochs',
    'Length of the run as passes over the training problems, in whole batches; totalTrainingSteps wins where it is written.',
  ),
  stopWhen: v.optional(stopWhen),
  pipeline: choice(
    'on-policy',
    ['on-policy', 'one-step-off', 'fully-async'],
    'on-policy = generate, then train; one-step-off = the next batch is generated while a step trains; fully-async = both go on all the time, as asyncTraining says. docs/pipelines.md.',
  ),
  placement: choice(
    'colocated',
    ['colocated', 'split'],
    'colocated = training and rollout on one device; split = on two of this machine, to which weights travel as rollout.checkpointEngine says.',
  ),
  testFreq: countOrOff(20, 'steps', 'Evaluate every so many; 0 = only before and after.'),
  saveFreq: countOrOff(0, 'steps', 'Checkpoint every so many; 0 = only by saveMinutes, at the end and on Ctrl-C.'),
  saveMinutes: number(
    30,
    ANY,
    'minutes',
    'Checkpoint when so many have passed since the last; the next one takes its place. 0 = off.',
  ),
  valBeforeTrain: flag(true, 'Evaluate at step 0, so that there is something to compare with.'),
  profile: flag(true, 'Write what every sample spent its time on, for webgrpo profile.'),
  profileGpu: flag(false, 'The profile also says how long the GPU computed, where the adapter has timestamps.'),
  logRollouts: count(8, 'samples', { why: 'Sampled rollouts written per step, for reading; 0 = none.', min: 0 }),
  keepRollouts: flagOrCount(
    false,
    'steps',
    'Keep every sample of a step with its tokens, log-probs and rewards, for webgrpo replay; a number = of the last so many steps.',
  ),
  logValGenerations: count(0, 'samples', { why: 'Answers of each evaluation written beside them; 0 = none.', min: 0 }),
  defaultLocalDir: text('runs', 'The run folder is <defaultLocalDir>/<name>.'),
  refUpdateFreq: count(0, 'steps', {
    why: 'Refresh the reference of KL terms from the policy every so many; 0 = never.',
    min: 0,
  }),
  refMixupAlpha: number(1, SHARE, '', 'Share of the policy in a refreshed reference; 1 = a copy.'),
  kernelTuning: text(
    'auto',
    'auto = time the kernels once where the built-in choice was not measured; off = built in; or a file of webgrpo tune.',
  ),
  logger,
  resumeMode: choice(
    'disable',
    ['disable', 'auto', 'resume_path'],
    'disable = from scratch, an earlier run of the name is kept under another; auto = from the newest checkpoint in the run ' +
      'folder, if there is one; resume_path = from resumeFromPath.',
  ),
  resumeFromPath: text(undefined, 'Checkpoint or run folder to go on from; read where resumeMode is resume_path.'),
  resume: flag(undefined, 'Earlier name: true = resumeMode auto.'),
  onError: choice(
    'stop',
    ['stop', 'skip'],
    'A sample whose reward, agent loop or tool parser fails: stop = the run ends; skip = the sample has no reward, counted in ' +
      'training/faulty_samples.',
  ),
  maxActorCkptToKeep: count(
    undefined,
    'checkpoints',
    'The newest that are kept, older ones are deleted; absent = all. The best one by metricForBestModel is kept besides.',
  ),
  metricForBestModel: text(
    undefined,
    'Save a checkpoint whenever this metric is at its best, e.g. val-core/gsm8k-tool/acc/mean@1; absent = off.',
  ),
  greaterIsBetter: flag(undefined, "Of that metric; absent = true, but false where its name ends in 'loss'."),
});
