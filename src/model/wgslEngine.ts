/** Default ModelEngine: forward and backward in hand-written WGSL, on weight buffers that rollout shares. */

import type { Gpu, View } from '../gpu/device.ts';
import { type Gradients, recordBackward } from './backward.ts';
import { expectFinite } from './checkpoint/open.ts';
import type { ModelConfig } from './config.ts';
import type {
  DrawBounds,
  OptimizerOptions,
  ModelEngine,
  OptimizerStepResult,
  PackedBatch,
  TensorMap,
  TokenOutputs,
  TrainLoss,
} from './engine.ts';
import { type ForwardOptions, recordForward } from './forward.ts';
import type { LlamaModel } from './llama.ts';
import { GpuWeights } from './weights/gpuWeights.ts';
import type { HeadBatch } from './head.ts';
import { LoraWeights } from './lora/weights.ts';
import { Optimizer } from './optimizer/optimizer.ts';
import type { OptimizerSpec } from './optimizer/spec.ts';
import { entropyGradient, PolicyStage } from './policyStage.ts';
import { createWorkspace, freeWorkspace, sortByToken, type Workspace } from './workspace.ts';

export interface WgslEngineOptions {
  /**
   * Activation checkpointing: store only each layer's input and compute layers again in backward. Needs less memory and
   * about a third more time.
   */
  enableGradientCheckpointing?: boolean | undefined;
  /** Default: AdamW. */
  optimizer?: OptimizerSpec | undefined;
}

/** Trains every weight, or only the adapters if the model has some. Exports and imports only what is trained. */
export class WgslEngine implements ModelEngine {
  readonly name = 'wgsl';
  readonly config: ModelConfig;
  readonly #gpu: Gpu;
  readonly #model: LlamaModel;
  readonly #maxTokenLen: number;
  readonly #policy: PolicyStage;
  readonly #checkpoint: boolean;
  readonly #optimizerSpec: OptimizerSpec | undefined;
  #workspace: Workspace | undefined;
  #optimizer: Optimizer<GpuWeights> | Optimizer<LoraWeights> | undefined;
  /** [E, 3] probability masses for `drawBounds`; created at first use. */
  #cdf: View | undefined;
  /**
   * Number of micro-batches in the current update. Together with the number of updates this is the key of the dropout
   * masks.
   */
  #microBatches = 0;

  /** @param maxTokenLen number of rows in the largest micro-batch; a larger batch enlarges the workspace */
  constructor(gpu: Gpu, model: LlamaModel, maxTokenLen: number, options: WgslEngineOptions = {}) {
    this.config = model.config;
    this.#gpu = gpu;
    this.#model = model;
    this.#maxTokenLen = maxTokenLen;
    this.#policy = new PolicyStage(gpu);
    this.#checkpoint = options.enableGradientCheckpointing ?? false;
    this.#optimizerSpec = options.optimizer;
  }

  /**
   * Allocates in advance the buffers that the first batches need: those of a batch of `maxTokenLen` rows, the optimizer
   * if `training`, and those of a policy loss if `policyLoss`.
   */
  reserve({ training = false, policyLoss = false }: { training?: boolean; policyLoss?: boolean } = {}): void {
    if (training) this.#ensureOptimizer();
    const { entries } = this.#ensureWorkspace(this.#maxTokenLen, 0);
    if (policyLoss) this.#policy.reserve(entries);
  }

  logProbs(batch: PackedBatch, { temperature }: { temperature: number }): Promise<TokenOutputs> {
    return this.#logProbs(batch, temperature, {});
  }

  async drawBounds(batch: PackedBatch, { temperature }: { temperature: number }): Promise<DrawBounds> {
    await this.#gpu.compiling;
    const E = batch.targets.length;
    const space = this.#upload(batch);
    const cdf = this.#cdfOf(E);
    this.#recordForward(space, batch, temperature, { inference: true }, cdf);
    const [logProbs, masses] = await this.#gpu.readRanges([
      { view: space.batch.logp, offset: 0, bytes: E * 4 },
      { view: cdf, offset: 0, bytes: E * 12 },
    ]);
    const values = new Float32Array(masses);
    const column = (c: number) => Float32Array.from({ length: E }, (_, e) => values[e * 3 + c]);
    return { logProbs: new Float32Array(logProbs), below: column(0), through: column(1), total: column(2) };
  }

  #cdfOf(entries: number): View {
    if (this.#cdf && this.#cdf.bytes >= entries * 12) return this.#cdf;
    if (this.#cdf) this.#gpu.free(this.#cdf);
    return (this.#cdf = this.#gpu.buffer('batch.cdf', entries * 12));
  }

  /**
   * Returns the base model with its adapters off, which is the reference policy of a KL term. Needs no additional
   * memory.
   */
  referencePolicy(): ModelEngine {
    const frozen = () =>
      Promise.reject(new Error('The reference policy is frozen. Only its log-probs can be computed.'));
    return {
      name: this.name,
      config: this.config,
      logProbs: (batch, { temperature }) => this.#logProbs(batch, temperature, { adapters: false }),
      forwardBackward: frozen,
      optimizerStep: frozen,
      zeroGrad: frozen,
      exportGradients: frozen,
      exportOptimizer: frozen,
      importOptimizer: frozen,
      importWeights: frozen,
      exportWeights: () => this.#model.weights.exportTensors(),
      destroy: () => {},
    };
  }

  async #logProbs(batch: PackedBatch, temperature: number, options: ForwardOptions): Promise<TokenOutputs> {
    await this.#gpu.compiling;
    const space = this.#upload(batch);
    this.#recordForward(space, batch, temperature, { ...options, inference: true });
    return this.#readOutputs(space, batch);
  }

  async forwardBackward(
    batch: PackedBatch,
    loss: TrainLoss,
    { temperature }: { temperature: number },
  ): Promise<TokenOutputs> {
    await this.#gpu.compiling;
    if (loss.kind === 'policy') await this.#policy.prepare(loss.spec);
    const space = this.#upload(batch);
    const optimizer = this.#ensureOptimizer();
    this.#uploadLoss(space, batch, loss);
    const options = { dropKey: this.#dropKey(optimizer) };
    const { rows, head } = this.#recordForward(space, batch, temperature, options);
    this.#gpu.flush(); // the device starts while the rest is recorded
    if (loss.kind === 'policy') this.#policy.record(batch, loss.spec, space.batch.logp, space.batch.dLogp);
    const grads = gradientsOf(optimizer.grads);
    space.head.recordBackward(head, temperature, grads.base, space.scratch.dx);
    recordBackward(this.#gpu, this.#model, rows, space.activations, space.scratch, grads, options);
    return this.#readOutputs(space, batch);
  }

  optimizerStep(options: OptimizerOptions): Promise<OptimizerStepResult> {
    this.#microBatches = 0;
    return this.#ensureOptimizer().step(options);
  }

  async zeroGrad(): Promise<void> {
    this.#microBatches = 0;
    this.#optimizer?.zeroGrad();
  }

  exportWeights(): Promise<TensorMap> {
    return this.#trained.exportTensors();
  }

  async importWeights(tensors: TensorMap): Promise<void> {
    expectFinite(tensors, 'The weights to load');
    this.#trained.importTensors(tensors);
    await this.#gpu.idle();
  }

  exportOptimizer(): Promise<TensorMap> {
    return this.#ensureOptimizer().exportTensors();
  }

  async importOptimizer(tensors: TensorMap): Promise<void> {
    this.#ensureOptimizer().importTensors(tensors);
    await this.#gpu.idle();
  }

  exportGradients(): Promise<TensorMap> {
    return this.#ensureOptimizer().grads.exportTensors();
  }

  destroy(): void {
    this.#gpu.destroy();
  }

  get #trained(): GpuWeights | LoraWeights {
    return this.#model.lora?.weights ?? this.#model.weights;
  }

  /**
   * Key of the dropout masks: different in every micro-batch, and the same in a resumed run; undefined without dropout.
   */
  #dropKey(optimizer: { steps: number }): number | undefined {
    if (!this.#model.lora || this.#model.lora.config.dropout === 0) return undefined;
    return Math.imul(optimizer.steps, 0x10001) + this.#microBatches++;
  }

  #recordForward(space: Workspace, batch: PackedBatch, temperature: number, options: ForwardOptions, cdf?: View) {
    const { batch: b, activations } = space;
    const U = this.#tokenCount;
    const rows = {
      N: batch.tokens.length,
      tokens: b.tokens,
      positions: b.positions,
      kvRows: b.kvRows,
      ranges: b.ranges,
      queryEnd: b.queryEnd,
      byToken: { U, ids: b.tokenIds, start: b.tokenStart, rows: b.sortedRows },
    };
    const head: HeadBatch = { R: batch.headRows.length, E: batch.targets.length, ...b, cdf };
    recordForward(this.#gpu, this.#model, rows, activations, options);
    space.head.refresh();
    space.head.recordForward(activations.xOut, head, temperature);
    return { rows, head };
  }

  #tokenCount = 0;

  #upload(batch: PackedBatch): Workspace {
    this.#checkPositions(batch.positions);
    const space = this.#ensureWorkspace(batch.tokens.length, batch.targets.length);
    const b = space.batch;
    const sorted = sortByToken(batch.tokens);
    this.#tokenCount = sorted.ids.length;
    const writes: [View, Uint32Array][] = [
      [b.tokens, batch.tokens],
      [b.positions, batch.positions],
      [b.queryEnd, batch.queryEnd],
      [b.ranges, batch.ranges],
      [b.headRows, batch.headRows],
      [b.rowStart, batch.rowStart],
      [b.rowEntries, batch.rowEntries],
      [b.entryRow, batch.entryRow],
      [b.targets, batch.targets],
      [b.tokenIds, sorted.ids],
      [b.tokenStart, sorted.start],
      [b.sortedRows, sorted.rows],
    ];
    for (const [view, data] of writes) if (data.length > 0) this.#gpu.write(view, data);
    return space;
  }

  /**
   * Throws RangeError for a position beyond the RoPE table. The GPU would use the last position instead, without an
   * error.
   */
  #checkPositions(positions: Uint32Array): void {
    const known = this.#model.rope.bytes / (this.config.headDim * 4);
    const last = positions.reduce((a, b) => Math.max(a, b), 0);
    if (last < known) return;
    throw new RangeError(`A sequence reaches position ${last}, but the engine was made for ${known} positions.`);
  }

  #uploadLoss(space: Workspace, batch: PackedBatch, loss: TrainLoss): void {
    const E = batch.targets.length;
    const zeros = new Float32Array(E);
    if (loss.kind === 'policy') {
      this.#policy.reserve(space.entries);
      this.#policy.upload(batch, loss.spec, loss.inputs);
      this.#gpu.write(space.batch.dEntropy, entropyGradient(loss.spec, loss.inputs));
      return;
    }
    const dLogp = loss.kind === 'nll' ? loss.weights.map((w) => -w) : loss.dLogProbs;
    const dEntropy = loss.kind === 'coefficients' ? (loss.dEntropy ?? zeros) : zeros;
    this.#gpu.write(space.batch.dLogp, dLogp);
    this.#gpu.write(space.batch.dEntropy, dEntropy);
  }

  async #readOutputs(space: Workspace, batch: PackedBatch): Promise<TokenOutputs> {
    const bytes = batch.targets.length * 4;
    const [logProbs, entropy] = await this.#gpu.readRanges([
      { view: space.batch.logp, offset: 0, bytes },
      { view: space.batch.entropy, offset: 0, bytes },
    ]);
    return { logProbs: new Float32Array(logProbs), entropy: new Float32Array(entropy) };
  }

  #ensureOptimizer(): Optimizer<GpuWeights> | Optimizer<LoraWeights> {
    if (this.#optimizer) return this.#optimizer;
    const [gpu, { config, weights, lora }, spec] = [this.#gpu, this.#model, this.#optimizerSpec];
    return (this.#optimizer = lora
      ? new Optimizer(gpu, lora.weights, (label) => new LoraWeights(gpu, config, lora.config, label), spec)
      : new Optimizer(gpu, weights, (label) => new GpuWeights(gpu, config, label), spec));
  }

  #ensureWorkspace(rows: number, entries: number): Workspace {
    const old = this.#workspace;
    if (old && old.rows >= rows && old.entries >= entries) return old;
    const size = Math.max(this.#maxTokenLen, rows, old?.rows ?? 0);
    if (old) freeWorkspace(this.#gpu, old);
    // A sample has at most one more entry than it has rows, so 2 * size entries are enough.
    const sizes = { rows: size, entries: Math.max(2 * size, entries), checkpoint: this.#checkpoint };
    return (this.#workspace = createWorkspace(this.#gpu, this.#model, sizes));
  }
}

const gradientsOf = (grads: GpuWeights | LoraWeights): Gradients =>
  grads instanceof LoraWeights ? { lora: grads } : { base: grads };
