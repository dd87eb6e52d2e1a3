/** The checkpoint engines of one machine: rollout by a copy on the device that trains, and on a device of its own. */

import type { Gpu } from '../gpu/device.ts';
import type { CheckpointEngine, WeightTransfer } from '../grpo/pipeline/types.ts';
import { copyTrained, type LlamaModel } from '../model/llama.ts';
import { bucketCount } from '../model/weights/buckets.ts';
import type { SendOptions, WeightReceiver, WeightSender } from '../model/weights/stream.ts';
import type { RolloutServer } from '../rollout/server/server.ts';

/** Rollout draws by `copy`, into which each update copies what `policy` has become. */
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

/** How weights travel from device to device. */
export type StreamOptions = Pick<SendOptions, 'bucketBytes' | 'content'>;

/**
 * Rollout draws on another device. While bucket k is written there, bucket k + 1 is read here. Where a transfer fails, rollout keeps
 * the weights it has, and the next transfer is of everything.
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
      reading.catch(() => {}); // awaited below, unless a write fails before
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
        await receiver.dropWeights().catch(() => {}); // what has failed is told, not that it cannot be tidied up
        throw error;
      }),
  };
}

const secondsSince = (started: number): number => (performance.now() - started) / 1000;

/** When calls ran, one after another. */
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

  /** Seconds in which a call of both ran. */
  sharedWith(other: Stopwatch): number {
    let ms = 0;
    for (const a of this.#spans)
      for (const b of other.#spans) ms += Math.max(0, Math.min(a.to, b.to) - Math.max(a.from, b.from));
    return ms / 1000;
  }
}
