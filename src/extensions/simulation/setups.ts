/** Converts a config to setups on other devices, to be simulated. */

import type { TrainConfig } from '../../grpo/config/types.ts';
import { asyncSettings } from '../../grpo/pipeline/settings.ts';
import { groupsAtOnce } from '../rooms/index.ts';
import type { Setup } from './simulate.ts';

type Where = Pick<Setup, 'devices' | 'rolloutDevices' | 'steps'>;

/** Returns the setup of a config on devices of one machine. */
export const setupOf = (config: TrainConfig, where: Where): Setup => ({
  ...where,
  pipeline: asyncSettings(config) ?? onPolicy(config),
  maxNumSeqs: config.rollout.maxNumSeqs,
  miniBatches: Math.max(1, Math.round(config.data.trainBatchSize / config.actor.ppoMiniBatchSize)),
});

/** Returns the setup of a config in a room, next to the machine that trains. */
export const roomSetupOf = (
  config: TrainConfig,
  { workers, steps, verifies }: { workers: number; steps: number; verifies: boolean },
): Setup => ({
  ...setupOf(config, { devices: workers + 1, rolloutDevices: workers, steps }),
  room: { groupsAtOnce: groupsAtOnce(config), verifies },
});

/** Mode a of the fully asynchronous pipeline: a batch is generated, then trained on. */
const onPolicy = ({ data: { trainBatchSize: stepGroups } }: TrainConfig): Setup['pipeline'] => ({
  ...{ stepGroups, syncSteps: 1, maxGroups: stepGroups, maxAge: 0, partial: false, inOrder: true },
});
