/**
 * Checkpoint engines for rollout on the same machine. One is for rollout with a copy of the weights on the training device, the other for
 * rollout on another device.
 */

import type { Gpu } from '../gpu/device.ts';
import type { CheckpointEngine, WeightTransfer } from '../grpo/pipeline/types.ts';
import { copyTrained, type LlamaModel } from '../model/llama.ts';
import { bucketCount } from '../model/weights/buckets.ts';
import type { SendOptions, WeightReceiver, WeightSender } from '../model/weights/stream.ts';
import type { RolloutServer } from '../rollout/server/server.ts';

/** Returns the checkpoint engine for rollout that samples from the model `copy`. Each update copies the weights of `policy` into it. */
export const copiedWeights = (
  gpu: Gpu,
  { policy, copy, rollout }: { policy: LlamaModel; copy: LlamaModel; rollout: RolloutServer },
): CheckpointEngine => ({
  backend: 'copy',
  async updateWeights(version) {
    const started = performance.now();
    let bytes = 0;
    await rollout.changeWeights(async () => {
      bytes = copyTrained(gpu, policy, copy);
      await gpu.idle();
    }, version);
    return { version, bytes, seconds: secondsSince(started), overlapSeconds: 0 };
  },
});

/** Options of the transfer of weights from the training device to the rollout device. */
export type StreamOptions = Pick<SendOptions, 'bucketBytes' | 'content'>;

/**
 * Returns the checkpoint engine for rollout on another device. While the rollout device writes bucket k, the training device reads bucket k
 * + 1. If a transfer fails, rollout keeps its old weights, and the next transfer sends all buckets.
 */
export function streamedWeights(
  sender: WeightSender,
  receiver: WeightReceiver,
  { bucketBytes, content }: StreamOptions,
): CheckpointEngine {
  let afresh = true;
  const transfer = async (version: number): Promise<WeightTransfer> => {
    const started = performance.now();
    const [reads, writes] = [new Stopwatch(), new Stopwatch()];
    const tensors = await sender.openSend({ bucketBytes, content, afresh });
    afresh = true;
    await receiver.openReceive(tensors, bucketBytes);
    const count = bucketCount(tensors, bucketBytes);
    const read = (k: number) => {
      const reading = reads.time(() => sender.sendWeights(k));
      reading.catch(() => {}); // awaited below, unless an earlier write fails
      return reading;
    };
    let [bytes, sent] = [0, 0];
    let next = count > 0 ? read(0) : undefined;
    for (let k = 0; next; k++) {
      const data = await next;
      next = k + 1 < count ? read(k + 1) : undefined;
      if (!data) continue;
      sent++;
      bytes += data.byteLength;
      await writes.time(() => receiver.receiveWeights(k, data));
    }
    await receiver.useWeights(version, sent);
    afresh = false;
    return { version, bytes, seconds: secondsSince(started), overlapSeconds: reads.sharedWith(writes) };
  };
  return {
    backend: 'stream',
    updateWeights: (version) =>
      transfer(version).catch(async (error: unknown) => {
        await receiver.dropWeights().catch(() => {}); // only the first failure is reported, not a failed clean-up
        throw error;
      }),
  };
}

const secondsSince = (started: number): number => (performance.now() - started) / 1000;

/** Measures when calls started and ended. The calls of one stopwatch must not overlap. */
class Stopwatch {
  readonly #spans: { from: number; to: number }[] = [];

  async time<T>(work: () => Promise<T>): Promise<T> {
    const from = performance.now();
    try {
      return await work();
    } finally {
      this.#spans.push({ from, to: performance.now() });
    }
  }

  /** Returns the seconds in which calls of both stopwatches ran at the same time. */
  sharedWith(other: Stopwatch): number {
    let ms = 0;
    for (const a of this.#spans)
      for (const b of other.#spans) ms += Math.max(0, Math.min(a.to, b.to) - Math.max(a.from, b.from));
    return ms / 1000;
  }
}
