/** The checkpoint engine of a rollout that reads the trained buffers themselves: nothing is moved, what it has cached is forgotten. */

import type { Metrics } from '../metrics.ts';
import type { TrainerEngine } from '../types.ts';
import type { CheckpointEngine, WeightTransfer } from './types.ts';

type Engine = Pick<TrainerEngine, 'checkpointEngine' | 'rollout'>;

/** The engine's own, or that of shared weights. */
export const checkpointEngineOf = ({ checkpointEngine, rollout }: Engine): CheckpointEngine =>
  checkpointEngine ?? {
    backend: 'shared',
    async updateWeights(version): Promise<WeightTransfer> {
      const started = performance.now();
      await rollout.resetCache(version);
      return { version, bytes: 0, seconds: (performance.now() - started) / 1000, overlapSeconds: 0 };
    },
  };

/** Rollout draws by the weights as they are now, called `version`. */
export async function bringWeights(engine: Engine, version: number): Promise<Metrics> {
  const weights = checkpointEngineOf(engine);
  const transfer = await weights.updateWeights(version);
  return weights.backend === 'shared' ? {} : transferMetrics(transfer);
}

/** Returns the metrics of a step's weight transfer. Default: no transfer. */
export const transferMetrics = ({ bytes, seconds, overlapSeconds } = NO_TRANSFER): Metrics => ({
  'perf/sync_bytes': bytes,
  'perf/sync_s': seconds,
  'perf/sync_overlap_s': overlapSeconds,
});

const NO_TRANSFER: Omit<WeightTransfer, 'version'> = { bytes: 0, seconds: 0, overlapSeconds: 0 };
