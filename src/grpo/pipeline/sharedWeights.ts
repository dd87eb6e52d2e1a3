/**
 * Checkpoint engine for a rollout that reads the trained buffers themselves. A sync copies nothing; it only clears
 * rollout's cache.
 */

import type { Metrics } from '../metrics.ts';
import type { TrainerEngine } from '../types.ts';
import type { CheckpointEngine, WeightTransfer } from './types.ts';

type Engine = Pick<TrainerEngine, 'checkpointEngine' | 'rollout'>;

/** Returns the engine's own checkpoint engine, or else one for shared weights. */
export const checkpointEngineOf = ({ checkpointEngine, rollout }: Engine): CheckpointEngine =>
  checkpointEngine ?? {
    backend: 'shared',
    async updateWeights(version): Promise<WeightTransfer> {
      const started = performance.now();
      await rollout.resetCache(version);
      return { version, bytes: 0, seconds: (performance.now() - started) / 1000, overlapSeconds: 0 };
    },
  };

/** Syncs the current weights to rollout as version `version`. Returns metrics of the transfer. */
export async function bringWeights(engine: Engine, version: number): Promise<Metrics> {
  const weights = checkpointEngineOf(engine);
  const transfer = await weights.updateWeights(version);
  return weights.backend === 'shared' ? {} : transferMetrics(transfer);
}

/** Metrics of a step's weight transfer. Without an argument, those of a step without a transfer. */
export const transferMetrics = ({ bytes, seconds, overlapSeconds } = NO_TRANSFER): Metrics => ({
  'perf/sync_bytes': bytes,
  'perf/sync_s': seconds,
  'perf/sync_overlap_s': overlapSeconds,
});

const NO_TRANSFER: Omit<WeightTransfer, 'version'> = { bytes: 0, seconds: 0, overlapSeconds: 0 };
