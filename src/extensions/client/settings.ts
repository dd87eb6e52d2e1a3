/** Limits of a run with clients, and a check for settings that do not work with clients. */

import { InputError } from '../../errors.ts';
import type { ToolParser } from '../../rollout/tools/parser.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { hasRewardModels } from '../../grpo/generate/options.ts';
import { pipelineOf } from '../../grpo/pipeline/settings.ts';

/** Limits on episodes that are open or wait for their step. */
export interface ClientLimits {
  /**
   * Time limit in seconds, after which an episode without a new call is aborted, and a group that waits for more episodes is closed.
   * Default: 600.
   */
  timeoutS?: number;
  /** Maximum number of episodes that are open or wait for their step. Further ones are refused with status 429. Default: 4096. */
  maxTrajectories?: number;
  /** Parser for tool calls. Default: the parser of rollout.multiTurn.format. */
  toolParser?: ToolParser;
  /** When `fit` starts a step: 'complete' = as soon as enough groups are complete (default); 'asked' = after a call of `requestStep`. */
  stepWhen?: 'complete' | 'asked';
  /**
   * True to refuse requests with fields that have no effect, or with another model name or temperature. Default: such fields are counted.
   */
  strict?: boolean;
  /** Called with a line for the user: at the first request with a field that has no effect, and at the first group with equal replies. */
  note?: (line: string) => void;
  /**
   * True if clients are other processes (`webgrpo serve`), so that open episodes of a checkpoint can continue. Default: clients are in this
   * process and ended with it, so these episodes are aborted and counted.
   */
  outlives?: boolean;
}

/** Task without problems, for functions that require a task to read a config's sampling settings. */
export const NO_TASK = {
  name: 'client',
  train: (): never => {
    throw new InputError('Clients bring their own problems, so this task has none. Let clients open the episodes.');
  },
  heldOut: () => [],
  reward: (): never => {
    throw new InputError('Episodes come from clients, which give the rewards.');
  },
};

/** Throws InputError for settings that work only if the trainer generates the samples itself. */
export function checkConfig(config: TrainConfig): void {
  const { algorithm, rollout, reward } = config;
  const wrong = [
    ['trainer.pipeline', pipelineOf(config).isAsync],
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

/** Metrics of `client/` that count events since the last step. */
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
