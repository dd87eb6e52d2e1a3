/** The default ModelEngine: hand-written WGSL, forward and backward, on buffers that rollout shares. */

import type { Gpu, View } from '../gpu/device.ts';
import { type BackwardScratch, createBackwardScratch, recordBackward } from './backward.ts';
import type { ModelConfig } from './config.ts';
import type {
  AdamWOptions,
  ModelEngine,
  OptimizerStepResult,
  PackedBatch,
  TensorMap,
  TokenOutputs,
  TrainLoss,
} from './engine.ts';
import { type Activations, createActivations, freeActivations, type LlamaModel, recordForward } from './forward.ts';
import { Head, type HeadBatch } from './head.ts';
import { Optimizer } from './optimizer.ts';
import { entropyGradient, PolicyStage } from './policyStage.ts';

/** Device copies of a PackedBatch, sized for the largest one. */
interface BatchBuffers {
  /** [N] */ tokens: View;
  positions: View;
  kvRows: View;
  queryEnd: View;
  sortedRows: View;
  tokenIds: View;
  tokenStart: View;
  /** [N, 4] */ ranges: View;
  /** [R] or [R + 1] */ headRows: View;
  rowStart: View;
  /** [E] */ rowEntries: View;
  entryRow: View;
  targets: View;
  logp: View;
  entropy: View;
  dLogp: View;
  dEntropy: View;
}

interface Workspace {
  rows: number;
  entries: number;
  batch: BatchBuffers;
  activations: Activations;
  scratch: BackwardScratch;
  head: Head;
}

export class WgslEngine implements ModelEngine {
  readonly name = 'wgsl';
  readonly config: ModelConfig;
  readonly #gpu: Gpu;
  readonly #model: LlamaModel;
  readonly #maxTokenLen: number;
  readonly #policy: PolicyStage;
  #workspace: Workspace | undefined;
  #optimizer: Optimizer | undefined;

  /** @param maxTokenLen rows of the largest micro-batch; what does not fit grows the workspace. */
  constructor(gpu: Gpu, model: LlamaModel, maxTokenLen: number) {
    this.config = model.config;
    this.#gpu = gpu;
    this.#model = model;
    this.#maxTokenLen = maxTokenLen;
    this.#policy = new PolicyStage(gpu);
  }

  async logProbs(batch: PackedBatch, { temperature }: { temperature: number }): Promise<TokenOutputs> {
    const space = this.#upload(batch);
    this.#recordForward(space, batch, temperature);
    return this.#readOutputs(space, batch);
  }

  async forwardBackward(
    batch: PackedBatch,
    loss: TrainLoss,
    { temperature }: { temperature: number },
  ): Promise<TokenOutputs> {
    const space = this.#upload(batch);
    const optimizer = this.#ensureOptimizer();
    this.#uploadLoss(space, batch, loss);
    const { rows, head } = this.#recordForward(space, batch, temperature);
    if (loss.kind === 'policy') this.#policy.record(batch, loss.spec, space.batch.logp, space.batch.dLogp);
    space.head.recordBackward(head, temperature, optimizer.grads, space.scratch.dx);
    recordBackward(this.#gpu, this.#model, rows, space.activations, space.scratch, optimizer.grads);
    return this.#readOutputs(space, batch);
  }

  optimizerStep(options: AdamWOptions): Promise<OptimizerStepResult> {
    return this.#ensureOptimizer().step(options);
  }

  exportWeights(): Promise<TensorMap> {
    return this.#model.weights.exportTensors();
  }

  async importWeights(tensors: TensorMap): Promise<void> {
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
    this.#gpu.destroy();
  }

  #recordForward(space: Workspace, batch: PackedBatch, temperature: number) {
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
    const head: HeadBatch = { R: batch.headRows.length, E: batch.targets.length, ...b };
    recordForward(this.#gpu, this.#model, rows, activations);
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

  /** The GPU would clamp a position past the RoPE table, and the numbers would be silently wrong. */
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

  #ensureOptimizer(): Optimizer {
    return (this.#optimizer ??= new Optimizer(this.#gpu, this.config, this.#model.weights));
  }

  #ensureWorkspace(rows: number, entries: number): Workspace {
    const old = this.#workspace;
    if (old && old.rows >= rows && old.entries >= entries) return old;
    const size = Math.max(this.#maxTokenLen, rows, old?.rows ?? 0);
    if (old) this.#freeWorkspace(old);
    // A sample has at most one entry more than it has rows of its own.
    return (this.#workspace = this.#createWorkspace(size, Math.max(2 * size, entries)));
  }

  #freeWorkspace({ batch, activations, scratch, head }: Workspace): void {
    for (const view of [...Object.values(batch), ...Object.values(scratch)] as View[]) this.#gpu.free(view);
    freeActivations(this.#gpu, activations);
    head.free();
  }

  #createWorkspace(rows: number, entries: number): Workspace {
    const gpu = this.#gpu;
    const u32 = (label: string, n: number) => gpu.buffer(`batch.${label}`, n * 4);
    const identity = Uint32Array.from({ length: rows }, (_, n) => n);
    const batch: BatchBuffers = {
      tokens: u32('tokens', rows),
      positions: u32('positions', rows),
      kvRows: gpu.buffer('batch.kvRows', identity),
      queryEnd: u32('queryEnd', rows),
      sortedRows: u32('sortedRows', rows),
      tokenIds: u32('tokenIds', rows),
      tokenStart: u32('tokenStart', rows + 1),
      ranges: u32('ranges', rows * 4),
      headRows: u32('headRows', rows),
      rowStart: u32('rowStart', rows + 1),
      rowEntries: u32('rowEntries', entries),
      entryRow: u32('entryRow', entries),
      targets: u32('targets', entries),
      logp: u32('logp', entries),
      entropy: u32('entropy', entries),
      dLogp: u32('dLogp', entries),
      dEntropy: u32('dEntropy', entries),
    };
    return {
      rows,
      entries,
      batch,
      activations: createActivations(gpu, this.config, rows),
      scratch: createBackwardScratch(gpu, this.config, rows),
      head: new Head(gpu, this.#model, rows, true),
    };
  }
}

/** Rows grouped by token, ascending, so that the embedding gradient needs no atomics. */
export function sortByToken(tokens: Uint32Array): { ids: Uint32Array; start: Uint32Array; rows: Uint32Array } {
  const rows = Uint32Array.from({ length: tokens.length }, (_, n) => n).sort((a, b) => tokens[a] - tokens[b] || a - b);
  const [ids, start]: [number[], number[]] = [[], []];
  rows.forEach((row, i) => {
    if (i > 0 && tokens[row] === tokens[rows[i - 1]]) return;
    ids.push(tokens[row]);
    start.push(i);
  });
  return { ids: Uint32Array.from(ids), start: Uint32Array.from([...start, tokens.length]), rows };
}
