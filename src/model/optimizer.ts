/** Gradients, AdamW moments and the update, over the weight arena in place. Both engines use this one. */

import type { Gpu, View } from '../gpu/device.ts';
import { adamw, gradClip, gradNorm, NORM_SLOTS } from '../gpu/ops/adamw.ts';
import type { AdamWOptions, OptimizerStepResult, TensorMap } from './engine.ts';
import type { Arena } from './weights/arena.ts';

/** Owns gradients and both moments of the trained weights, and the number of updates done; it changes the weights, which it does not own. */
export class Optimizer<T extends Arena> {
  /** Same layout as the weights; accumulates until `step`. */
  readonly grads: T;
  readonly #gpu: Gpu;
  readonly #weights: T;
  readonly #expAvg: T;
  readonly #expAvgSq: T;
  readonly #partial: View;
  readonly #clip: View;
  #steps = 0;

  /** @param like makes an empty arena laid out as `weights`. */
  constructor(gpu: Gpu, weights: T, like: (label: string) => T) {
    this.#gpu = gpu;
    this.#weights = weights;
    this.grads = like('gradients');
    this.#expAvg = like('adamw.exp_avg');
    this.#expAvgSq = like('adamw.exp_avg_sq');
    this.#partial = gpu.buffer('grad_norm.partial', weights.buffers.length * NORM_SLOTS * 4);
    this.#clip = gpu.buffer('grad_clip', 3 * 4);
  }

  /** Updates done so far. */
  get steps(): number {
    return this.#steps;
  }

  /** Clips by the global norm, updates the weights, clears the gradients. A non-finite norm changes no weight. */
  async step({ gradClip: maxNorm, ...options }: AdamWOptions): Promise<OptimizerStepResult> {
    const [gpu, partial, clip, t] = [this.#gpu, this.#partial, this.#clip, this.#steps + 1];
    const weights = this.#weights.buffers;
    this.grads.buffers.forEach((g, i) => gradNorm(gpu, { g, partial, n: g.bytes / 4, slot: i * NORM_SLOTS }));
    gradClip(gpu, { partial, clip, slots: weights.length * NORM_SLOTS, maxNorm });
    weights.forEach((w, i) => {
      const [g, m, v] = [this.grads, this.#expAvg, this.#expAvgSq].map(({ buffers }) => buffers[i]);
      adamw(gpu, { clip, w, g, m, v, n: w.bytes / 4, t, ...options });
    });
    this.#weights.refresh();
    const [norm, , ok] = await this.#gpu.readF32(this.#clip);
    if (ok === 1) this.#steps++;
    return { gradNorm: norm, skipped: ok !== 1 };
  }

  async exportTensors(): Promise<TensorMap> {
    const tensors: TensorMap = new Map([['step', { shape: [1], data: new Float32Array([this.#steps]) }]]);
    const [first, second] = [await this.#expAvg.exportTensors(), await this.#expAvgSq.exportTensors()];
    for (const [name, tensor] of first) tensors.set(`${name}.exp_avg`, tensor);
    for (const [name, tensor] of second) tensors.set(`${name}.exp_avg_sq`, tensor);
    return tensors;
  }

  importTensors(tensors: TensorMap): void {
    this.#steps = tensors.get('step')?.data[0] ?? 0;
    const strip = (suffix: string): TensorMap =>
      new Map([...tensors].flatMap(([k, v]) => (k.endsWith(suffix) ? [[k.slice(0, -suffix.length), v]] : [])));
    this.#expAvg.importTensors(strip('.exp_avg'));
    this.#expAvgSq.importTensors(strip('.exp_avg_sq'));
  }

  free(): void {
    for (const arena of [this.grads, this.#expAvg, this.#expAvgSq]) arena.free();
    this.#gpu.free(this.#partial);
    this.#gpu.free(this.#clip);
  }
}
