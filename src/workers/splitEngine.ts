/** Training on one device, rollout on another: two engines, of this thread or of two workers, as one. */

import type { TrainConfig } from '../grpo/config/types.ts';
import type { TrainerEngine } from '../grpo/types.ts';
import type { WeightReceiver, WeightSender } from '../model/weights/stream.ts';
import { streamedWeights, type StreamOptions } from './checkpointEngine.ts';
import type { EngineSpec } from './engineSpec.ts';

/** What only the device that trains has. */
const OF_TRAINING = [
  ...['withReference', 'judge', 'judgePositions', 'judgeModel'],
  ...['optimizer', 'enableGradientCheckpointing'],
];

/** The specs of both devices, of an EngineSpec or what there is of one. The reference and the judges are on the one that trains. */
export function splitSpecs<T extends Pick<EngineSpec, 'use' | 'rolloutWeights'>>(spec: T): { train: T; rollout: T } {
  const kept = Object.entries(spec).filter(([key]) => !OF_TRAINING.includes(key));
  const rollout = { ...(Object.fromEntries(kept) as T), use: 'generate', rolloutWeights: 'stream' };
  return { train: { ...spec, rolloutWeights: 'stream' }, rollout };
}

/** How a training config has weights travel. */
export function streamOptions({ rollout }: TrainConfig): StreamOptions {
  const { updateWeightsBucketMegabytes, content } = rollout.checkpointEngine;
  return { bucketBytes: 4 * Math.round((updateWeightsBucketMegabytes * 2 ** 20) / 4), content };
}

/** An engine of `createLocalEngine` or `createRemoteEngine`. */
interface Half extends TrainerEngine {
  sender?: WeightSender;
  receiver?: WeightReceiver;
  untilLost?(): Promise<never>;
  destroy(): void | Promise<void>;
}

/**
 * One engine of two that were made by `splitSpecs`: all of `train`, but for rollout, which is that of the other one. Its
 * `checkpointEngine` must be called after every update of the policy. Throws TypeError for engines of other specs.
 */
export function splitEngine<T extends Half>(
  train: T,
  { rollout, receiver, ...other }: Half,
  options: StreamOptions,
): T {
  const { sender } = train;
  if (!sender || !receiver)
    throw new TypeError('splitEngine takes two engines, made from the specs that splitSpecs gives.');
  return {
    ...train,
    rollout,
    checkpointEngine: streamedWeights(sender, receiver, options),
    ...(train.untilLost && {
      untilLost: () => Promise.race([train.untilLost!(), ...(other.untilLost ? [other.untilLost()] : [])]),
    }),
    async destroy() {
      await Promise.all([train.destroy(), other.destroy()]);
    },
  };
}
