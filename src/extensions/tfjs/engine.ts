/**
 * The second ModelEngine (`engine: tfjs`), with gradients by automatic differentiation, as a check of the hand-written ones. The engine
 * reads the same weight buffers as rollout and passes its gradients to the same optimizer, all on the GPU.
 */

import type { Tensor } from '@tensorflow/tfjs';
import type { Gpu, View } from '../../gpu/device.ts';
import { addInto } from '../../gpu/ops/add_into.ts';
import { expectFinite } from '../../model/checkpoint/open.ts';
import type { ModelConfig } from '../../model/config.ts';
import type {
  OptimizerOptions,
  ModelEngine,
  OptimizerStepResult,
  PackedBatch,
  PolicyLossInputs,
  PolicyLossSpec,
  TensorMap,
  TokenOutputs,
  TrainLoss,
} from '../../model/engine.ts';
import type { LlamaModel } from '../../model/llama.ts';
import { InputError } from '../../errors.ts';
import { GpuWeights } from '../../model/weights/gpuWeights.ts';
import { type Block, planBlocks } from '../../model/weights/plan.ts';
import { Optimizer } from '../../model/optimizer/optimizer.ts';
import type { OptimizerSpec } from '../../model/optimizer/spec.ts';
import { loadTfjs, type TfjsRuntime } from './backend.ts';
import { type TfjsPass, tfjsForward } from './model.ts';

/** Derivatives of the loss with respect to the log-prob and the entropy of each of E tokens. */
interface EntryGradients {
  dLogProbs: Float32Array;
  dEntropy?: Float32Array;
}

/** Computes the gradients of a policy loss on the CPU. The caller passes it, because this module does not import the losses. */
export type PolicyGradient = (
  spec: PolicyLossSpec,
  inputs: PolicyLossInputs,
  logProbs: Float32Array,
  batch: PackedBatch,
) => EntryGradients;

export interface TfjsEngineOptions {
  /** Computes the derivatives of losses of kind 'policy', which require it. The engine calls it between two forward passes. */
  policyGradient?: PolicyGradient;
  /**
   * Maximum number of bytes of logits that are stored at a time. A larger batch is computed in chunks, whose logits are computed again in
   * the backward pass.
   */
  logitsBytes?: number;
  /** Default: AdamW. */
  optimizer?: OptimizerSpec | undefined;
}

/**
 * Loads tfjs and creates the engine on the device of `gpu`. Throws InputError if attention scores for `maxTokenLen` rows do not fit into a
 * buffer binding.
 * @param maxTokenLen maximum number of rows in a batch
 */
export async function createTfjsEngine(
  gpu: Gpu,
  model: LlamaModel,
  maxTokenLen: number,
  options: TfjsEngineOptions = {},
): Promise<ModelEngine> {
  checkScores(gpu, model.config, maxTokenLen);
  return new TfjsEngine(gpu, model, maxTokenLen, options, await loadTfjs(gpu));
}

/**
 * Throws InputError if the attention scores are too large. Attention here is dense: [H, rows, rows] values if one group fills the batch.
 */
function checkScores(gpu: Gpu, { numAttentionHeads: H }: ModelConfig, rows: number): void {
  const limit = gpu.device.limits.maxStorageBufferBindingSize;
  if (H * rows * rows * 4 <= limit) return;
  throw new InputError(
    `Engine "tfjs" needs ${H * rows * rows * 4} bytes for the attention scores of ${rows} rows but this device binds at ` +
      `most ${limit}. Lower actor.ppoMaxTokenLenPerGpu to ${Math.floor(Math.sqrt(limit / 4 / H))}, or use engine "wgsl".`,
  );
}

/** The buffers through which the gradient of one weight block gets from tfjs into the optimizer's gradient buffer. */
interface Route {
  /**
   * View of a staging buffer that all blocks use one after the other. Bind groups are cached by buffer, so they need one that stays the
   * same, unlike the buffers of tfjs's tensors.
   */
  inbox: View;
  target: View;
}

class TfjsEngine implements ModelEngine {
  readonly name = 'tfjs';
  readonly config: ModelConfig;
  readonly #gpu: Gpu;
  readonly #model: LlamaModel;
  readonly #maxTokenLen: number;
  readonly #policyGradient: PolicyGradient | undefined;
  readonly #logitsBytes: number;
  readonly #optimizerSpec: OptimizerSpec | undefined;
  readonly #runtime: TfjsRuntime;
  readonly #blocks: Block[];
  /** The weight buffer and the RoPE table as tfjs tensors, shared without a copy. */
  readonly #arena: Tensor;
  readonly #ropeTable: Tensor;
  #optimizer: Optimizer<GpuWeights> | undefined;
  #routes: Route[] | undefined;
  #lastSizes = '';

  constructor(gpu: Gpu, model: LlamaModel, maxTokenLen: number, options: TfjsEngineOptions, runtime: TfjsRuntime) {
    const { config, weights, rope } = model;
    this.config = config;
    this.#gpu = gpu;
    this.#model = model;
    this.#maxTokenLen = maxTokenLen;
    this.#policyGradient = options.policyGradient;
    this.#logitsBytes = options.logitsBytes ?? 32 << 20;
    this.#optimizerSpec = options.optimizer;
    this.#runtime = runtime;
    if (weights.buffers.length > 1)
      throw new InputError(
        `Engine "tfjs" needs all weights in one buffer, but on this device they take ${weights.buffers.length}. Use engine "wgsl".`,
      );
    this.#blocks = planBlocks(config).blocks;
    this.#arena = runtime.share(weights.buffers[0], [weights.elements]);
    this.#ropeTable = runtime.share(rope, [rope.bytes / 4 / config.headDim, config.headDim]);
  }

  async logProbs(batch: PackedBatch, { temperature }: { temperature: number }): Promise<TokenOutputs> {
    this.#begin(batch);
    const out = this.#runtime.tf.tidy(() => this.#forward(batch, temperature, this.#weights()));
    return this.#readOutputs(out);
  }

  async forwardBackward(
    batch: PackedBatch,
    loss: TrainLoss,
    { temperature }: { temperature: number },
  ): Promise<TokenOutputs> {
    const { dLogProbs, dEntropy } = await this.#entryGradients(batch, loss, temperature);
    const { tf } = this.#runtime;
    const E = batch.targets.length;
    this.#begin(batch);
    const { value, grads } = tf.tidy(() => {
      const dy = tf.concat([tf.tensor1d(dLogProbs), dEntropy ? tf.tensor1d(dEntropy) : tf.zeros([E])]);
      return tf.valueAndGrads((...weights: Tensor[]) => this.#forward(batch, temperature, weights))(
        this.#weights(),
        dy,
      );
    });
    this.#accumulate(grads);
    return this.#readOutputs(value);
  }

  optimizerStep(options: OptimizerOptions): Promise<OptimizerStepResult> {
    return this.#ensureOptimizer().step(options);
  }

  async zeroGrad(): Promise<void> {
    this.#optimizer?.zeroGrad();
  }

  exportWeights(): Promise<TensorMap> {
    return this.#model.weights.exportTensors();
  }

  async importWeights(tensors: TensorMap): Promise<void> {
    expectFinite(tensors, 'The weights to load');
    this.#model.weights.importTensors(tensors);
  }

  exportOptimizer(): Promise<TensorMap> {
    return this.#ensureOptimizer().exportTensors();
  }

  async importOptimizer(tensors: TensorMap): Promise<void> {
    this.#ensureOptimizer().importTensors(tensors);
  }

  exportGradients(): Promise<TensorMap> {
    return this.#ensureOptimizer().grads.exportTensors();
  }

  destroy(): void {
    this.#runtime.destroy();
    this.#gpu.destroy();
  }

  async #entryGradients(batch: PackedBatch, loss: TrainLoss, temperature: number): Promise<EntryGradients> {
    if (loss.kind === 'coefficients') return loss;
    if (loss.kind === 'nll') return { dLogProbs: loss.weights.map((w) => -w) };
    if (!this.#policyGradient)
      throw new Error('Engine "tfjs" was made without a policyGradient, so it cannot train with a policy loss.');
    // Inside a tfjs gradient function nothing can be awaited, so the log-probs for the loss are computed by a separate forward pass.
    const { logProbs } = await this.logProbs(batch, { temperature });
    return this.#policyGradient(loss.spec, loss.inputs, logProbs, batch);
  }

  /** Prepares a pass: submits our own GPU commands before those of tfjs. Throws RangeError for a batch that is too large. */
  #begin({ tokens, positions, headRows, targets }: PackedBatch): void {
    if (tokens.length > this.#maxTokenLen)
      throw new RangeError(`A batch of ${tokens.length} rows came to an engine made for ${this.#maxTokenLen}.`);
    const last = positions.reduce((a, b) => Math.max(a, b), 0);
    if (last >= this.#ropeTable.shape[0])
      throw new RangeError(
        `Position ${last} came to a model made for positions up to ${this.#ropeTable.shape[0] - 1}.`,
      );
    this.#gpu.flush();
    const sizes = `${tokens.length},${headRows.length},${targets.length}`;
    if (sizes !== this.#lastSizes) this.#runtime.trim();
    this.#lastSizes = sizes;
  }

  /** Returns the weight blocks as tensors. They are copied on the GPU, because tfjs can use a buffer in place only from offset 0. */
  #weights(): Tensor[] {
    const { tf } = this.#runtime;
    return this.#blocks.map(({ label, offset, size, width }) => {
      const flat = tf.slice(this.#arena, [offset / 4], [size]);
      if (label.endsWith('qkNorm')) return tf.reshape(flat, [2, width / 2]);
      return size === width ? flat : tf.reshape(flat, [size / width, width]);
    });
  }

  #forward(batch: PackedBatch, temperature: number, weights: Tensor[]): Tensor {
    const { tf } = this.#runtime;
    const named = new Map(this.#blocks.map(({ label }, i) => [label, weights[i]]));
    const [ropeTable, logitsBytes] = [this.#ropeTable, this.#logitsBytes];
    const pass: TfjsPass = { tf, config: this.config, weights: named, ropeTable, logitsBytes };
    return tfjsForward(pass, batch, temperature);
  }

  /** Adds tfjs's gradients, one per weight block, to the optimizer's gradient buffer. */
  #accumulate(grads: Tensor[]): void {
    const routes = this.#ensureRoutes();
    this.#runtime.submit();
    this.#blocks.forEach(({ size: n }, i) => {
      const { inbox, target } = routes[i];
      this.#gpu.copy(this.#runtime.source(grads[i]), inbox, n * 4);
      addInto(this.#gpu, { x: inbox, y: target, n });
    });
    // The copies must be submitted before tfjs can reuse its buffers.
    this.#gpu.flush();
    this.#runtime.tf.dispose(grads);
  }

  /** Reads a tensor of 2E values back: the log-probs, then the entropies. */
  async #readOutputs(value: Tensor): Promise<TokenOutputs> {
    const data = (await value.data()) as Float32Array;
    value.dispose();
    const E = data.length / 2;
    return { logProbs: data.slice(0, E), entropy: data.slice(E) };
  }

  #ensureOptimizer(): Optimizer<GpuWeights> {
    const like = (label: string) => new GpuWeights(this.#gpu, this.config, label);
    return (this.#optimizer ??= new Optimizer(this.#gpu, this.#model.weights, like, this.#optimizerSpec));
  }

  #ensureRoutes(): Route[] {
    if (this.#routes) return this.#routes;
    const [arena] = this.#ensureOptimizer().grads.buffers;
    const inbox = this.#gpu.buffer('tfjs.inbox', Math.max(...this.#blocks.map(({ size }) => size * 4)));
    return (this.#routes = this.#blocks.map(({ offset, size }) => ({
      inbox: this.#gpu.slice(inbox, 0, size * 4),
      target: this.#gpu.slice(arena, offset, size * 4),
    })));
  }
}
