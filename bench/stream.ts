/**
 * Measures how long new weights take to reach rollout: copied on one device, and streamed to another one (the same adapter again) by bucket
 * size. The model has 29 M parameters, 114 MiB. Reports the best of several rounds, because other programs on a shared machine only ever
 * add time.
 */

import { Gpu } from '../src/gpu/device.ts';
import type { WeightTransfer } from '../src/grpo/pipeline/types.ts';
import { allocateCopy, copyTrained, createModel } from '../src/model/llama.ts';
import { DeviceReceiver, DeviceSender } from '../src/model/weights/stream.ts';
import { type StreamOptions, streamedWeights } from '../src/workers/checkpointEngine.ts';
import { HEADLINE, randomModel } from './models.ts';
import type { Report } from './report.ts';
import { bestSeconds } from './timing.ts';

const SIZE = {
  ...HEADLINE,
  vocabSize: 8192,
  hiddenSize: 512,
  headDim: 128,
  intermediateSize: 1536,
  numHiddenLayers: 8,
};
const MIB = 2 ** 20;
const BUCKETS_MIB = [0.25, 1, 4, 16, 32];
/** Default of rollout.checkpointEngine.updateWeightsBucketMegabytes. */
const DEFAULT_MIB = 16;

type Result = NonNullable<Report['stream']>;

export async function benchStream(gpu: Gpu, quick: boolean, rounds: number): Promise<Result> {
  const config = quick ? HEADLINE : SIZE;
  const model = randomModel(gpu, config);
  const other = await Gpu.create();
  try {
    const sender = new DeviceSender(gpu, model);
    const receiver = new DeviceReceiver(other, createModel(other, config, 1), async (change) => change());
    let version = 0;
    const best = async (options: StreamOptions): Promise<WeightTransfer> => {
      const engine = streamedWeights(sender, receiver, options);
      const transfers: WeightTransfer[] = [];
      for (let round = 0; round <= rounds; round++) transfers.push(await engine.updateWeights(++version));
      return transfers.slice(1).reduce((a, b) => (b.seconds < a.seconds ? b : a)); // the first transfer allocates memory
    };
    const byBucketMib: Result['byBucketMib'] = {};
    for (const mib of BUCKETS_MIB) {
      const { bytes, seconds, overlapSeconds } = await best({ bucketBytes: mib * MIB, content: 'whole' });
      byBucketMib[mib] = { bytes, seconds, overlap: overlapSeconds / seconds };
    }
    const unchanged = await best({ bucketBytes: DEFAULT_MIB * MIB, content: 'delta' });
    const copy = allocateCopy(gpu, model);
    let bytes = 0;
    const seconds = await bestSeconds(async () => {
      bytes = copyTrained(gpu, model, copy);
      await gpu.idle();
    }, rounds);
    copy.weights.free();
    return {
      ...byBucketMib[DEFAULT_MIB],
      byBucketMib,
      unchanged: { bytes: unchanged.bytes, seconds: unchanged.seconds },
      copy: { bytes, seconds },
    };
  } finally {
    other.destroy();
  }
}
