/**
 * The policy loss on the device, between forward and backward: computes d loss / d log-prob from log-probs without a
 * read-back.
 */

import type { Gpu, View } from '../gpu/device.ts';
import {
  entrySamples,
  type LossKernels,
  packPolicyRows,
  POLICY_INPUTS,
  policyLoss,
  policyLossKernels,
  preparePolicyLoss,
} from '../gpu/ops/policy_loss.ts';
import type { PackedBatch, PolicyLossInputs, PolicyLossSpec } from './engine.ts';

interface Buffers {
  /** Numbers of entries and of samples that the buffers can hold. */
  capacity: number;
  /** [E, 6] */ inputs: View;
  /** [E] */ entrySample: View;
  /** [S + 1] */ seqStart: View;
  /** [S, 4] */ stats: View;
}

/**
 * Owns the buffers with the loss's inputs other than the log-probs: [E] per entry and [S] per sample. The buffers grow
 * if a batch is larger than announced by `reserve`.
 */
export class PolicyStage {
  readonly #gpu: Gpu;
  #buffers: Buffers | undefined;
  /** Compiled kernels of the current loss; a run has one loss. */
  #prepared: LossKernels | undefined;

  constructor(gpu: Gpu) {
    this.#gpu = gpu;
  }

  /** Compiles the loss if it is another one than last time. Throws InputError if its WGSL is wrong. */
  async prepare(spec: PolicyLossSpec): Promise<void> {
    const kernels = policyLossKernels(spec);
    if (kernels === this.#prepared) return;
    await preparePolicyLoss(this.#gpu, spec);
    this.#prepared = kernels;
  }

  /** Uploads the loss's inputs other than the log-probs. Throws RangeError if a length differs from the batch's. */
  upload({ seqStart, targets }: PackedBatch, spec: PolicyLossSpec, inputs: PolicyLossInputs): void {
    const E = targets.length;
    for (const [name, values] of Object.entries(inputs) as [string, ArrayLike<number> | undefined][]) {
      if (values && values.length !== E)
        throw new RangeError(`Policy loss input "${name}" has ${values.length} values for ${E} predicted tokens.`);
    }
    if (spec.klLossCoef !== 0 && !inputs.refLogProbs)
      throw new RangeError(`klLossCoef is ${spec.klLossCoef} but no reference log-probs came with the batch.`);
    if (E === 0) return;
    const buffers = this.reserve(Math.max(E, seqStart.length - 1));
    this.#gpu.write(buffers.inputs, packPolicyRows(inputs));
    this.#gpu.write(buffers.entrySample, entrySamples(seqStart));
    this.#gpu.write(buffers.seqStart, seqStart);
  }

  /** Records the kernel that computes dLogp [E] from logp [E]. `upload` must be called before. */
  record({ seqStart, targets }: PackedBatch, spec: PolicyLossSpec, logp: View, dLogp: View): void {
    const E = targets.length;
    if (E === 0 || !this.#buffers) return;
    const { inputs, entrySample, seqStart: start, stats } = this.#buffers;
    const S = seqStart.length - 1;
    const kl = { type: spec.klLossType, coef: spec.klLossCoef, clamp: spec.klClamp };
    policyLoss(this.#gpu, { loss: spec, kl, logp, inputs, entrySample, seqStart: start, stats, dLogp, E, S });
  }

  /** Allocates buffers for `entries` entries. Each entry belongs to a sample, so there are at most as many samples. */
  reserve(entries: number): Buffers {
    const old = this.#buffers;
    if (old && old.capacity >= entries) return old;
    if (old) for (const view of [old.inputs, old.entrySample, old.seqStart, old.stats]) this.#gpu.free(view);
    return (this.#buffers = {
      capacity: entries,
      inputs: this.#gpu.buffer('policy.inputs', entries * POLICY_INPUTS * 4),
      entrySample: this.#gpu.buffer('policy.entrySample', entries * 4),
      seqStart: this.#gpu.buffer('policy.seqStart', (entries + 1) * 4),
      stats: this.#gpu.buffer('policy.stats', entries * 16),
    });
  }
}

/**
 * Computes d loss / d entropy [E] for the entropy bonus -entropyCoeff * sum_e w_e * H_e, with w = entropyWeights, or
 * klWeights by default.
 */
export function entropyGradient(spec: PolicyLossSpec, inputs: PolicyLossInputs): Float32Array<ArrayBuffer> {
  const weights = inputs.entropyWeights ?? inputs.klWeights;
  return Float32Array.from(weights, (w) => (spec.entropyCoeff === 0 ? 0 : -spec.entropyCoeff * w));
}
