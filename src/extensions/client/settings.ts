/** Limits of a client run, and a check of settings that cannot be combined with clients. */

import { InputError } from '../../errors.ts';
import type { ToolParser } from '../../rollout/tools/parser.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { hasRewardModels } from '../../grpo/generate/options.ts';

/** Limits on open and waiting episodes. */
export interface ClientLimits {
  /**
   * Seconds without a call after which an episode is aborted, and without a new episode after which a waiting group is closed. Default:
   * 600.
   */
  timeoutS?: number;
  /** Maximum number of episodes that are open or waiting for their step; more are refused (429). Default: 4096. */
  maxTrajectories?: number;
  /** Replaces the parser that rollout.multiTurn.format names. */
  toolParser?: ToolParser;
  /** Condition for `fit` to start a step. 'complete' = enough groups are complete (default); 'asked' = `requestStep` was called. */
  stepWhen?: 'complete' | 'asked';
  /** True to refuse fields that change nothing, other model names and temperatures, instead of counting them. */
  strict?: boolean;
  /** Called with a line for the user: the first of each hint that was taken, and a group of equal replies. */
  note?: (line: string) => void;
  /**
   * True if callers are other processes (`webgrpo serve`): open episodes of a checkpoint then continue. Default: callers live in this
   * process, so these episodes are aborted and counted.
   */
  outlives?: boolean;
}

/** Task for reading a config's sampling settings. No problem is taken from it. */
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

/** Throws InputError for settings that require the trainer to generate the samples itself. */
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
      `${wrong} is set, but in this run clients make the samples and set the rewards. Leave it out.`,
    );
}

/** Metrics that count events since the previous step. */
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
  'client/equal_groups',
] as const;
