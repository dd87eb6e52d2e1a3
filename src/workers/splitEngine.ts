/** Combines two engines into one: training on one device, rollout on another. Both engines are in this thread, or each is in a worker. */

import type { TrainConfig } from '../grpo/config/types.ts';
import type { Lowered, TrainerEngine } from '../grpo/types.ts';
import type { WeightReceiver, WeightSender } from '../model/weights/stream.ts';
import { streamedWeights, type StreamOptions } from './checkpointEngine.ts';
import { type OtherEngine, otherEngineOf, type EngineSpec } from './engineSpec.ts';

/** Names of the settings that only the engine on the training device has. */
const OF_TRAINING = [
  ...['withReference', 'judge', 'judgePositions', 'judgeModel'],
  ...['optimizer', 'enableGradientCheckpointing'],
];

/**
 * Returns the specs of the training device and of the rollout device, from a full or partial EngineSpec. The reference and the judges are
 * on the training device. Both devices are on one adapter, so each spec also has the sizes of the other engine.
 */
export function splitSpecs<T extends OtherEngine & Pick<EngineSpec, 'otherEngines'>>(
  spec: T,
): { train: T; rollout: T } {
  const kept = Object.entries(spec).filter(([key]) => !OF_TRAINING.includes(key));
  const train = { ...spec, rolloutWeights: 'stream' as const };
  const rollout = { ...(Object.fromEntries(kept) as T), use: 'generate' as const, rolloutWeights: 'stream' as const };
  const others = (other: OtherEngine) => ({ otherEngines: [otherEngineOf(other), ...(spec.otherEngines ?? [])] });
  return { train: { ...train, ...others(rollout) }, rollout: { ...rollout, ...others(train) } };
}

/** Returns the options of the weight transfer that a training config sets. */
export function streamOptions({ rollout }: TrainConfig): StreamOptions {
  const { updateWeightsBucketMegabytes, content } = rollout.checkpointEngine;
  return { bucketBytes: 4 * Math.round((updateWeightsBucketMegabytes * 2 ** 20) / 4), content };
}

/** One of the two engines, from `createLocalEngine` or `createRemoteEngine`. */
interface Half extends TrainerEngine {
  sender?: WeightSender;
  receiver?: WeightReceiver;
  untilLost?(): Promise<never>;
  destroy(): void | Promise<void>;
}

/**
 * Returns one engine made of the two engines for `splitSpecs`: rollout is that of the second engine, everything else is that of `train`.
 * The caller must call its `checkpointEngine` after every update of the policy. Throws TypeError for engines of other specs.
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
    ...(train.lowered && { lowered: both(train.lowered, other.lowered) }),
    ...(!train.lowered && other.lowered && { lowered: other.lowered }),
    checkpointEngine: streamedWeights(sender, receiver, options),
    ...(train.untilLost && {
      untilLost: () => Promise.race([train.untilLost!(), ...(other.untilLost ? [other.untilLost()] : [])]),
    }),
    async destroy() {
      await Promise.all([train.destroy(), other.destroy()]);
    },
  };
}

const both = (one: Lowered, other: Lowered = one): Lowered => ({
  values: { ...one.values, ...other.values },
  note: [...new Set([one.note, other.note])].join('; '),
});
