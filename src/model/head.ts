/**
 * Language-model head over the rows that predict a token: final norm, logits, log-sum-exp, log-prob, entropy, and their
 * backward pass. Logits exist only for a chunk of rows at a time; backward recomputes them if there was more than one
 * chunk.
 */

import type { Gpu, View } from '../gpu/device.ts';
import { copyColumns } from '../gpu/ops/copy_columns.ts';
import { gatherRows, scatterRows } from '../gpu/ops/gather_rows.ts';
import { headBwd, headCdf, headLogprob, headStats } from '../gpu/ops/head.ts';
import { matmulNn, matmulTn } from '../gpu/ops/matmul.ts';
import { RMSNORM_BLOCK_ROWS, rmsnorm, rmsnormBwd } from '../gpu/ops/rmsnorm.ts';
import { transpose } from '../gpu/ops/transpose.ts';
import type { RowChunk } from '../gpu/ops/embed.ts';
import type { ModelConfig } from './config.ts';
import type { LlamaModel } from './llama.ts';
import type { GpuWeights } from './weights/gpuWeights.ts';

/** The head's part of a PackedBatch on the device, and its outputs. */
export interface HeadBatch {
  R: number;
  E: number;
  /** [R] */ headRows: View;
  /** [R + 1] */ rowStart: View;
  /** [E] */ rowEntries: View;
  /** [E] */ entryRow: View;
  /** [E] */ targets: View;
  /** [E] out */ logp: View;
  /** [E] out */ entropy: View;
  /** [E, 3] output of kernels/head_cdf.wgsl, if requested */ cdf?: View | undefined;
  /** [E] d loss / d logp */ dLogp: View;
  /** [E] d loss / d entropy */ dEntropy: View;
}

/** Bytes of logits that exist at a time. A small chunk leaves most of a GPU idle and reads the whole table for few rows. */
const LOGITS_BYTES = { software: 32 << 20, hardware: 128 << 20 };

/**
 * Maximum bytes of a table (the head's weight matrix) that is kept as a transposed copy. Larger tables are read
 * untransposed, row by row.
 */
const HEAD_COPY_BYTES = 64 << 20;

/**
 * True if a transposed copy of a float32 table is kept. Products with the copy are as fast or faster, but it doubles
 * the table's memory.
 */
const keepsCopy = ({ vocabSize: V, hiddenSize: C }: ModelConfig, most = HEAD_COPY_BYTES): boolean => V * C * 4 <= most;

/**
 * Owns the buffers of the head for a limited number of rows at a time: logits and their statistics, the normalised
 * rows, the transposed table. Throws OutOfMemoryError if the device has too little memory, RangeError for more rows
 * than fit.
 */
export class Head {
  /** Number of rows whose logits exist at a time. */
  readonly chunkRows: number;
  readonly logits: View;
  readonly stats: View;
  readonly #gpu: Gpu;
  readonly #model: LlamaModel;
  /**
   * [C, rows] transposed copies of the head's chunks. Empty if products read the table untransposed. If the table is
   * packed, one buffer that is written before every use.
   */
  readonly #headT: View[];
  /** [chunkRows, rows] logits for one chunk of the vocabulary. Undefined if the head has only one chunk. */
  readonly #part: View | undefined;
  readonly #gathered: View;
  readonly #hidden: View;
  readonly #rstd: View;
  readonly #dHidden: View;
  readonly #dGathered: View;
  readonly #partial: View;
  readonly #hiddenChunks: View[];
  readonly #dHiddenChunks: View[];

  /** @param oneChunk true to hold the logits of all maxRows rows at the same time, as sampling needs */
  constructor(gpu: Gpu, model: LlamaModel, maxRows: number, forTraining: boolean, oneChunk = false) {
    const { hiddenSize: C, vocabSize: V } = model.config;
    this.#gpu = gpu;
    this.#model = model;
    this.chunkRows = oneChunk ? maxRows : headChunkRows(gpu, model, maxRows);
    const f32 = (label: string, n: number) => gpu.buffer(`head.${label}`, n * 4);
    this.logits = f32('logits', this.chunkRows * V);
    this.stats = f32('stats', this.chunkRows * 2);
    const chunks = model.weights.views.head;
    const copied = keepsCopy(model.config, model.headCopyBytes) ? chunks : [];
    const unpacked = model.weights.readsPacked ? [] : chunks.slice(0, 1);
    const kept = chunks[0].view.packed ? unpacked : copied;
    this.#headT = kept.map(({ rows }, i) =>
      model.weights.matrixBuffer(i === 0 ? 'head.transposed' : `head.transposed.${i}`, rows * C),
    );
    this.#part = chunks.length > 1 ? f32('part', this.chunkRows * chunks[0].rows) : undefined;
    this.#gathered = f32('gathered', maxRows * C);
    this.#hidden = model.half ? gpu.halves('head.hidden', maxRows * C) : f32('hidden', maxRows * C);
    this.#rstd = f32('rstd', maxRows);
    const back = forTraining ? maxRows : 1;
    this.#dHidden = f32('dHidden', back * C);
    this.#dGathered = f32('dGathered', back * C);
    this.#partial = f32('partial', Math.ceil(back / RMSNORM_BLOCK_ROWS) * C);
    this.#hiddenChunks = this.#chunks(this.#hidden, maxRows);
    this.#dHiddenChunks = forTraining ? this.#chunks(this.#dHidden, maxRows) : [];
  }

  /** Records the transposed copies of the head's chunks. Must be called after every change of the weights. */
  refresh(): void {
    this.#model.weights.views.head.forEach((chunk, i) => {
      if (!chunk.view.packed && this.#headT[i]) this.#transpose(chunk, this.#headT[i]);
    });
  }

  /**
   * Records final norm and logits of R rows of x, at most one chunk of rows, for sampling. `logits` and `stats` hold
   * the result.
   */
  recordLogits(x: View, rows: View, R: number, temperature: number): void {
    if (R > this.chunkRows) throw new RangeError(`${R} rows of logits do not fit a chunk of ${this.chunkRows}.`);
    this.#norm(x, rows, R);
    this.#logits(0, R, temperature);
  }

  /**
   * Records log-prob and entropy of every entry and, if requested, the target's place in the cumulative distribution.
   */
  recordForward(x: View, batch: HeadBatch, temperature: number): void {
    const { R, E, entryRow, targets, logp, entropy, cdf } = batch;
    const { logits, stats } = this;
    this.#norm(x, batch.headRows, R);
    for (let firstRow = 0; firstRow < R; firstRow += this.chunkRows) {
      const rows = Math.min(this.chunkRows, R - firstRow);
      this.#logits(firstRow, rows, temperature);
      const V = this.#model.config.vocabSize;
      const chunk = { logits, stats, R: rows, V, firstRow, temperature, entryRow, targets, E };
      headLogprob(this.#gpu, { ...chunk, logp, entropy });
      if (cdf) headCdf(this.#gpu, { ...chunk, cdf });
    }
  }

  /**
   * Records the backward passes. They add the weight gradients to `grads` (undefined = frozen weights) and write the
   * input gradient to dx. dx is cleared first, so it is 0 in rows that predict no token.
   */
  recordBackward(batch: HeadBatch, temperature: number, grads: GpuWeights | undefined, dx: View): void {
    const gpu = this.#gpu;
    const { hiddenSize: C, vocabSize: V } = this.#model.config;
    const { R, rowStart, rowEntries, targets, dLogp, dEntropy } = batch;
    const { logits, stats } = this;
    for (let firstRow = 0; firstRow < R; firstRow += this.chunkRows) {
      const rows = Math.min(this.chunkRows, R - firstRow);
      const chunk = firstRow / this.chunkRows;
      if (R > this.chunkRows) this.#logits(firstRow, rows, temperature);
      const sizes = { R: rows, V, firstRow, temperature };
      headBwd(gpu, { logits, stats, rowStart, rowEntries, targets, dLogp, dEntropy, ...sizes });
      const [hidden, dHidden] = [this.#hiddenChunks[chunk], this.#dHiddenChunks[chunk]];
      this.#model.weights.views.head.forEach(({ view, rows: K }, i) => {
        const dLogits = this.#takeColumns(i, rows);
        this.#model.weights.product({ x: dLogits, b: view, y: dHidden, M: rows, N: C, K, accumulate: i > 0 });
        if (grads) matmulTn(gpu, { a: dLogits, b: hidden, y: grads.views.head[i].view, M: K, N: C, K: rows });
      });
    }
    rmsnormBwd(gpu, {
      x: this.#gathered,
      weight: this.#model.weights.views.finalNorm,
      rstd: this.#rstd,
      dy: this.#dHidden,
      dx: this.#dGathered,
      dweight: grads?.views.finalNorm,
      partial: this.#partial,
      N: R,
      C,
    });
    gpu.clear(dx);
    scatterRows(gpu, { x: dx, rows: batch.headRows, y: this.#dGathered, R, C });
  }

  free(): void {
    const views = [this.logits, this.stats, ...this.#headT, this.#gathered, this.#hidden, this.#rstd, this.#dHidden];
    if (this.#part) views.push(this.#part);
    for (const view of [...views, this.#dGathered, this.#partial]) this.#gpu.free(view);
  }

  #norm(x: View, rows: View, R: number): void {
    const { hiddenSize: C, rmsNormEps: eps } = this.#model.config;
    gatherRows(this.#gpu, { x, rows, y: this.#gathered, R, C });
    const weight = this.#model.weights.views.finalNorm;
    rmsnorm(this.#gpu, { x: this.#gathered, weight, y: this.#hidden, rstd: this.#rstd, N: R, C, eps });
  }

  #logits(firstRow: number, rows: number, temperature: number): void {
    const { vocabSize: V } = this.#model.config;
    const hidden = this.#hiddenChunks[firstRow / this.chunkRows];
    this.#model.weights.views.head.forEach((chunk, i) => {
      const { rows: N, first } = chunk;
      const y = this.#part ?? this.logits;
      this.#product(hidden, i, y, rows);
      if (!this.#part) return;
      const sizes = { R: rows, C: N, firstX: 0, rowX: N, firstY: first, rowY: V };
      copyColumns(this.#gpu, { x: y, y: this.logits, ...sizes });
    });
    headStats(this.#gpu, { logits: this.logits, stats: this.stats, R: rows, V, temperature });
  }

  /** Records y = x b^T, where b is chunk i of the table. */
  #product(x: View, i: number, y: View, M: number): void {
    const chunk = this.#model.weights.views.head[i];
    const sizes = { x, y, M, N: chunk.rows, K: this.#model.config.hiddenSize };
    const b = this.#headT[chunk.view.packed ? 0 : i];
    if (!b) return this.#model.weights.product({ ...sizes, b: chunk.view }, true);
    if (chunk.view.packed) this.#transpose(chunk, b);
    matmulNn(this.#gpu, { ...sizes, b });
  }

  #transpose({ view, rows: N }: RowChunk, y: View): void {
    transpose(this.#gpu, { x: this.#model.weights.float32(view), y, N, C: this.#model.config.hiddenSize });
  }

  /** Returns the columns of `logits` for chunk `i` of the vocabulary, as a separate matrix. */
  #takeColumns(i: number, R: number): View {
    if (!this.#part) return this.logits;
    const { first, rows: C } = this.#model.weights.views.head[i];
    const sizes = { R, C, firstX: first, rowX: this.#model.config.vocabSize, firstY: 0, rowY: C };
    copyColumns(this.#gpu, { x: this.logits, y: this.#part, ...sizes });
    return this.#part;
  }

  #chunks(view: View, maxRows: number): View[] {
    const stride = this.chunkRows * this.#model.config.hiddenSize * (view.half ? 2 : 4);
    const count = Math.ceil(maxRows / this.chunkRows);
    if (count === 1) return [view];
    return Array.from({ length: count }, (_, i) =>
      this.#gpu.slice(view, i * stride, Math.min(stride, view.bytes - i * stride)),
    );
  }
}

/**
 * Returns the number of rows whose logits take at most LOGITS_BYTES. It is a multiple of 64, or of 128 for 16-bit logits, so
 * that chunks start at 256-byte offsets.
 */
function headChunkRows({ adapter }: Gpu, { config, half }: LlamaModel, maxRows: number): number {
  const step = half ? 128 : 64;
  const bytes = adapter.isSoftware ? LOGITS_BYTES.software : LOGITS_BYTES.hardware;
  const fit = Math.floor(bytes / (config.vocabSize * 4) / step) * step;
  return Math.min(Math.max(step, fit), Math.ceil(maxRows / step) * step);
}
