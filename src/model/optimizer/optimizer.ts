/** Gradients, state and update of an optimizer, in place on the weight arena. Both engines use this class. */

import { InputError } from '../../errors.ts';
import type { Gpu, View } from '../../gpu/device.ts';
import { gradClip, gradNorm, NORM_SLOTS } from '../../gpu/ops/adamw.ts';
import type { OptimizerOptions, OptimizerStepResult, TensorMap } from '../engine.ts';
import type { Arena } from '../weights/arena.ts';
import type { Rule } from './rule.ts';
import { makeRule } from './rules.ts';
import { savedSteps } from './savedState.ts';
import type { OptimizerSpec } from './spec.ts';

const SOURCE = "The checkpoint's optimizer state";

/**
 * Prefix of the key that names the optimizer in a saved state. A state without such a key is AdamW's, which was the
 * first optimizer here.
 */
const MARK = 'optimizer.';

/**
 * Owns gradients and optimizer state of the trained weights, and the number of updates. It changes the weights but does
 * not own them.
 */
export class Optimizer<T extends Arena> {
  /** Gradients in the same layout as the weights; they accumulate until `step`. */
  readonly grads: T;
  readonly #gpu: Gpu;
  readonly #weights: T;
  readonly #spec: OptimizerSpec;
  readonly #rule: Rule;
  readonly #partial: View;
  readonly #clip: View;
  #steps = 0;

  /** @param like creates an empty arena with the layout of `weights`. */
  constructor(gpu: Gpu, weights: T, like: (label: string) => T, spec: OptimizerSpec = { name: 'AdamW' }) {
    this.#gpu = gpu;
    this.#weights = weights;
    this.#spec = spec;
    this.grads = like('gradients');
    this.#partial = gpu.buffer('grad_norm.partial', weights.buffers.length * NORM_SLOTS * 4);
    this.#clip = gpu.buffer('grad_clip', 3 * 4);
    this.#rule = makeRule(spec, { gpu, weights, grads: this.grads, clip: this.#clip, like });
  }

  /** Updates done so far. */
  get steps(): number {
    return this.#steps;
  }

  /**
   * Clips the gradient by its global norm, updates the weights, zeroes the gradients. If the norm is not finite, no
   * weight changes.
   */
  async step({ gradClip: maxNorm, optimizer = this.#spec.name, ...options }: OptimizerOptions) {
    if (optimizer !== this.#spec.name)
      throw new InputError(
        `The config's optimizer is ${optimizer}, but the engine was made with ${this.#spec.name}. Give createLocalEngine what engineSizes(config) says.`,
      );
    const [gpu, partial, clip] = [this.#gpu, this.#partial, this.#clip];
    const { buffers } = this.grads;
    buffers.forEach((g, i) => gradNorm(gpu, { g, partial, n: g.bytes / 4, slot: i * NORM_SLOTS }));
    gradClip(gpu, { partial, clip, slots: buffers.length * NORM_SLOTS, maxNorm });
    this.#rule.update(this.#steps + 1, options);
    this.#weights.refresh();
    const [norm, , ok] = await gpu.readF32(clip);
    if (ok === 1) this.#steps++;
    const result: OptimizerStepResult = { gradNorm: norm, skipped: ok !== 1 };
    return result;
  }

  /** Clears the gradients of an update that will not be completed. */
  zeroGrad(): void {
    for (const g of this.grads.buffers) this.#gpu.clear(g);
  }

  async exportTensors(): Promise<TensorMap> {
    const scalar = (value: number) => ({ shape: [1], data: new Float32Array([value]) });
    const tensors: TensorMap = new Map([['step', scalar(this.#steps)]]);
    if (this.#spec.name !== 'AdamW') tensors.set(`${MARK}${this.#spec.name}`, scalar(1));
    for (const [suffix, arena] of this.#rule.states)
      for (const [name, tensor] of await arena.exportTensors()) tensors.set(`${name}.${suffix}`, tensor);
    return tensors;
  }

  /**
   * Restores a saved state. Throws InputError if the state is invalid, or belongs to another optimizer or other
   * weights.
   */
  importTensors(tensors: TensorMap): void {
    const { name } = this.#spec;
    const saved = [...tensors.keys()].find((key) => key.startsWith(MARK))?.slice(MARK.length) ?? 'AdamW';
    if (saved !== name)
      throw new InputError(
        `The checkpoint has the optimizer state of ${saved}, but this run's optimizer is ${name}. Set actor.optim.optimizer=${saved} ` +
          'to resume with it, or start a new run from its weights by model.path.',
      );
    const steps = savedSteps(tensors, SOURCE);
    this.#checkNames(tensors);
    for (const [suffix, arena] of this.#rule.states) {
      const end = `.${suffix}`;
      const found = [...tensors].filter(([key]) => key.endsWith(end));
      if (found.length === 0)
        throw new InputError(
          `The checkpoint's optimizer state has no ${suffix}, which ${name} needs here. Resume with the momentum that it was saved with.`,
        );
      arena.importTensors(new Map(found.map(([key, tensor]) => [key.slice(0, -end.length), tensor])));
    }
    this.#steps = steps;
  }

  #checkNames(tensors: TensorMap): void {
    const known = new Set(['step', `${MARK}${this.#spec.name}`]);
    for (const [suffix, { blocks }] of this.#rule.states)
      for (const { parts } of blocks) for (const { name } of parts) known.add(`${name}.${suffix}`);
    const unknown = [...tensors.keys()].find((name) => !known.has(name));
    if (unknown === undefined) return;
    throw new InputError(
      `${SOURCE} has "${unknown}", which ${this.#spec.name} does not keep for these weights. Does it belong to another run, or was it saved with another momentum?`,
    );
  }

  free(): void {
    for (const arena of [this.grads, ...this.#rule.states.values()]) arena.free();
    this.#rule.free?.();
    this.#gpu.free(this.#partial);
    this.#gpu.free(this.#clip);
  }
}
