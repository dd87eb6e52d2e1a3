/**
 * The second ModelEngine, `engine: tfjs`. Its gradients are tfjs's autodiff, as a check of the hand-written ones. It reads the same weight
 * buffers as rollout and passes its gradients to the same optimizer, all on the GPU.
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

/** d loss / d log-prob and d loss / d entropy of every entry, [E] each. */
interface EntryGradients {
  dLogProbs: Float32Array;
  dEntropy?: Float32Array;
}

/** Computes a policy loss on the CPU. Passed in by the caller, because the losses are in a layer above this one. */
export type PolicyGradient = (
  spec: PolicyLossSpec,
  inputs: PolicyLossInputs,
  logProbs: Float32Array,
  batch: PackedBatch,
) => EntryGradients;

export interface TfjsEngineOptions {
  /** Required for losses of kind 'policy', which this engine computes between two forward passes. */
  policyGradient?: PolicyGradient;
  /** Maximum number of bytes of logits at a time. If the head rows need more, they are computed twice, in chunks. */
  logitsBytes?: number;
  /** Default: AdamW. */
  optimizer?: OptimizerSpec | undefined;
}

/**
 * Loads tfjs and creates the engine on the device of `gpu`.
 * @param maxTokenLen maximum number of rows in a batch. Throws InputError if their attention scores would not fit a binding.
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

/** Attention here is dense: [H, rows, rows] if one group fills the batch. */
function checkScores(gpu: Gpu, { numAttentionHeads: H }: ModelConfig, rows: number): void {
  const limit = gpu.device.limits.maxStorageBufferBindingSize;
  if (H * rows * rows * 4 <= limit) return;
  throw new InputError(
    `Engine "tfjs" needs ${H * rows * rows * 4} bytes for the attention scores of ${rows} rows but this device binds at ` +
      `most ${limit}. Lower actor.ppoMaxTokenLenPerGpu to ${Math.floor(Math.sqrt(limit / 4 / H))}, or use engine "wgsl".`,
  );
}

/** Buffers through which the gradient of a block is copied from tfjs to the arena. */
interface Route {
  /** One buffer for all blocks in turn. Its views are stable, which bind groups need, although tfjs's buffers change. */
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
  /** The arena and the RoPE table as tensors of tfjs: shared, not copied. */
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
        `Engine "tfjs" reads weights out of one buffer, but this device needs ${weights.buffers.length} for them. Use engine "wgsl".`,
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
    // A tape cannot wait for a read-back, so the forward pass runs twice: once for the loss and once for its gradient.
    const { logProbs } = await this.logProbs(batch, { temperature });
    return this.#policyGradient(loss.spec, loss.inputs, logProbs, batch);
  }

  /** Submits our commands before tfjs computes on a batch. Throws RangeError for a batch that is too large. */
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

  /** Returns the blocks of the arena as tensors. They are copied on the GPU, because tfjs can share a buffer only from its start. */
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

  /** Adds tfjs's gradients, one per block, to the arena of our optimizer. */
  #accumulate(grads: Tensor[]): void {
    const routes = this.#ensureRoutes();
    this.#runtime.submit();
    this.#blocks.forEach(({ size: n }, i) => {
      const { inbox, target } = routes[i];
      this.#gpu.copy(this.#runtime.source(grads[i]), inbox, n * 4);
      addInto(this.#gpu, { x: inbox, y: target, n });
    });
    // Our reads must be submitted before tfjs reuses the buffers.
    this.#gpu.flush();
    this.#runtime.tf.dispose(grads);
  }

  /** Reads log-probs and entropies from value [2E]. */
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
