/** Measures the limits of this GPU on a device of its own, and counts the dispatches of a run's step. Loaded when a visitor asks. */

import { Gpu } from '../../src/gpu/device.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import {
  copyGbPerS,
  countDispatches,
  type Dispatches,
  dispatchCost,
  peakGflops,
} from '../../src/extensions/limits/index.ts';
import { engineSizes } from '../../src/workers/engineSpec.ts';

export interface Limits {
  /** Multiply-adds of 32-bit floats, counted as two operations. */
  gflops: number;
  /** Bytes read and written by a copy. */
  gbPerS: number;
  /** Microseconds of an empty dispatch among many. */
  dispatchUs: number;
  /** Dispatches of the run's step on this GPU. */
  dispatches: Dispatches;
}

/** About a second in all. Only the best round counts. */
const EFFORT = { rounds: 3, roundS: 0.05 };
/** Small enough that a slow GPU ends a dispatch in time, and that two buffers fit next to a model. */
const [WORK, COPIED_BYTES] = [{ groups: 512, rounds: 256 }, 64 << 20];

/** The GPU should have no other work. Throws NoAdapterError, and errors of a device. */
export async function measureLimits(config: TrainConfig, model: ModelConfig): Promise<Limits> {
  const gpu = await Gpu.create();
  try {
    return {
      gflops: await peakGflops(gpu, EFFORT, WORK),
      gbPerS: await copyGbPerS(gpu, EFFORT, COPIED_BYTES),
      dispatchUs: (await dispatchCost(gpu, EFFORT.rounds)).dispatchUs,
      dispatches: await countDispatches({ ...engineSizes(config), config: model }, gpu.adapter),
    };
  } finally {
    gpu.destroy();
  }
}
