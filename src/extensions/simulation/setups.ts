/** Converts a config to the setup of a simulation on other devices. */

import type { TrainConfig } from '../../grpo/config/types.ts';
import { pipelineOf } from '../../grpo/pipeline/settings.ts';
import { groupsAtOnce } from '../rooms/index.ts';
import type { Setup } from './simulate.ts';

type Where = Pick<Setup, 'devices' | 'rolloutDevices' | 'steps'>;

/** Returns the setup of a config on several devices of one machine. */
export const setupOf = (config: TrainConfig, where: Where): Setup => ({
  ...where,
  pipeline: pipelineOf(config),
  maxNumSeqs: config.rollout.maxNumSeqs,
  miniBatches: Math.max(1, Math.round(config.data.trainBatchSize / config.actor.ppoMiniBatchSize)),
});

/** Returns the setup of a config in a room: one device that trains, and workers that generate. */
export const roomSetupOf = (
  config: TrainConfig,
  { workers, steps, verifies }: { workers: number; steps: number; verifies: boolean },
): Setup => ({
  ...setupOf(config, { devices: workers + 1, rolloutDevices: workers, steps }),
  room: { groupsAtOnce: groupsAtOnce(config), verifies },
});
