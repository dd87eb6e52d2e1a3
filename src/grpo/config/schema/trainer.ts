/** The length of a run, what it evaluates, saves and logs. */

import * as v from 'valibot';
import { count, flag, number, optionalCount, optionalNumber, part, requiredText, text, SHARE } from '../keys.ts';

const stopWhen = part({
  metric: requiredText('Name of a metric as metrics.jsonl has it, e.g. val-core/countdown/acc/mean@1.'),
  atLeast: optionalNumber([-Infinity, Infinity], '', 'The run is done when the metric is at least this ...'),
  atMost: optionalNumber([-Infinity, Infinity], '', '... or at most this.'),
});

export const trainer = part({
  totalTrainingSteps: count(60, 'steps', 'Rollout batches to train on.', 0),
  totalEpochs: optionalCount(
    'epochs',
    'Length of the run as passes over the training problems, in whole batches; totalTrainingSteps wins where it is written.',
  ),
  stopWhen: v.optional(stopWhen),
  testFreq: count(20, 'steps', 'Evaluate every so many; 0 = only before and after.', 0),
  saveFreq: count(0, 'steps', 'Checkpoint every so many; 0 = only at the end and on Ctrl-C.', 0),
  valBeforeTrain: flag(true, 'Evaluate at step 0, so that there is something to compare with.'),
  profile: flag(true, 'Write what every sample spent its time on, for webgrpo profile.'),
  profileGpu: flag(false, 'The profile also says how long the GPU computed, where the adapter has timestamps.'),
  logRollouts: count(8, 'samples', 'Sampled rollouts written per step, for reading; 0 = none.', 0),
  logValGenerations: count(0, 'samples', 'Answers of each evaluation written beside them; 0 = none.', 0),
  outDir: text('runs', 'The run folder is <outDir>/<name>.'),
  refUpdateFreq: count(0, 'steps', 'Refresh the reference of KL terms from the policy every so many; 0 = never.', 0),
  refMixupAlpha: number(1, SHARE, '', 'Share of the policy in a refreshed reference; 1 = a copy.'),
  kernelTuning: text(
    'auto',
    'auto = time the kernels once where the built-in choice was not measured; off = built in; or a file of webgrpo tune.',
  ),
  resume: flag(false, 'Continue from the last checkpoint in the run folder.'),
});
