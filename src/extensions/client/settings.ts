/** What a run of clients is bounded by, and which settings do not go with clients. */

import { InputError } from '../../errors.ts';
import type { ToolParser } from '../../rollout/tools/parser.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { hasRewardModels } from '../../grpo/generate/options.ts';

/** Bounds of what is open and waits. */
export interface ClientLimits {
  /** Seconds without a call after which an episode is aborted, and a group that waits for further ones is closed. Default 600. */
  timeoutS?: number;
  /** Episodes that are open or wait for their step; a further one is refused (429). Default 4096. */
  maxTrajectories?: number;
  /** Replaces the parser that rollout.multiTurn.format names. */
  toolParser?: ToolParser;
  /** What `fit` begins a step at: 'complete' (default) = enough complete groups, 'asked' = `ask` alone. */
  stepWhen?: 'complete' | 'asked';
  /**
   * Callers are other processes (`webgrpo serve`), so the open episodes of a checkpoint continue. Default: callers live in this process, so
   * these episodes are aborted and counted.
   */
  outlives?: boolean;
}

/** Only where samples' settings are read from a config; no problem is drawn of it. */
export const NO_TASK = {
  name: 'client',
  train: (): never => {
    throw new InputError('Episodes come from clients. There are no problems to sample.');
  },
  heldOut: () => [],
  reward: (): never => {
    throw new InputError('Episodes come from clients, which give the rewards.');
  },
};

/** Throws InputError for settings that need samples of the trainer's own making. */
export function checkConfig({ algorithm, rollout, reward }: TrainConfig): void {
  const wrong = [
    ['rollout.overSampleRate', rollout.overSampleRate > 0],
    ['algorithm.filterGroups.enable', algorithm.filterGroups.enable],
    ['algorithm.replayBufferSize', algorithm.replayBufferSize > 0],
    ['algorithm.advEstimator: remax', algorithm.advEstimator === 'remax'],
    ['reward.judge or reward.model', hasRewardModels(reward)],
    ['reward.weights', Object.keys(reward.weights).length > 0],
    ['rollout.temperature: 0', rollout.temperature === 0],
  ].find(([, isSet]) => isSet)?.[0];
  if (wrong)
    throw new InputError(
      `${wrong} is set, but clients make the samples and give the rewards of this run. Leave it out.`,
    );
}

/** Metrics that count what has happened since the step before. */
export const COUNTED = [
  'client/calls',
  'client/continuations',
  'client/forks',
  'client/aborted_calls',
  'client/failed_calls',
  'client/unreadable_calls',
  'client/dropped_trajectories',
  'client/timed_out',
  'client/short_groups',
  'client/lost_trajectories',
] as const;
