/** The length of a run, what it evaluates, saves and logs. */

import { count, countOrOff, flag, number, part, text, SHARE } from '../keys.ts';

export const trainer = part({
  totalTrainingSteps: count(60, 'steps', 'Rollout batches to train on.', 0),
  testFreq: countOrOff(20, 'steps', 'Evaluate every so many; 0 = only before and after.'),
  saveFreq: countOrOff(0, 'steps', 'Checkpoint every so many; 0 = only at the end and on Ctrl-C.'),
  valBeforeTrain: flag(true, 'Evaluate at step 0, so that there is something to compare with.'),
  profile: flag(true, 'Write what every sample spent its time on, for webgrpo profile.'),
  profileGpu: flag(false, 'The profile also says how long the GPU computed, where the adapter has timestamps.'),
  logRollouts: count(8, 'samples', 'Sampled rollouts written per step, for reading; 0 = none.', 0),
  outDir: text('runs', 'The run folder is <outDir>/<name>.'),
  refUpdateFreq: count(0, 'steps', 'Refresh the reference of KL terms from the policy every so many; 0 = never.', 0),
  refMixupAlpha: number(1, SHARE, '', 'Share of the policy in a refreshed reference; 1 = a copy.'),
  kernelTuning: text(
    'auto',
    'auto = time the kernels once where the built-in choice was not measured; off = built in; or a file of webgrpo tune.',
  ),
  resume: flag(false, 'Continue from the last checkpoint in the run folder.'),
});
