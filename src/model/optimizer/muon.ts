/**
 * Muon (Jordan et al. 2024) for the matrices of the layers. Each Hugging Face matrix is updated separately: q, k and v
 * are three matrices, although they are stored as one block. Embeddings, head, norms and biases use AdamW, as usual.
 */

import type { View } from '../../gpu/device.ts';
import { adamw, NORM_SLOTS } from '../../gpu/ops/adamw.ts';
import { copyColumns } from '../../gpu/ops/copy_columns.ts';
import { newtonSchulz } from '../../gpu/ops/newton_schulz.ts';
import { momentum, sgd } from '../../gpu/ops/sgd.ts';
import { Arena } from '../weights/arena.ts';
import { type Block, placeBlocks } from '../weights/plan.ts';
import type { Rule, RuleOptions, Trained } from './rule.ts';
import type { AdjustLrFn } from './spec.ts';

interface MuonSpec {
  momentum: number;
  nesterov: boolean;
  adjustLrFn: AdjustLrFn;
}

/**
 * Owns the momentum of the matrices, AdamW's moments of the other parameters, and scratch memory for the largest matrix
 * twice.
 */
export class MuonRule implements Rule {
  readonly states: ReadonlyMap<string, Arena>;
  readonly #spec: MuonSpec;
  readonly #trained: Trained;
  readonly #matrices: Block[];
  readonly #others: Block[];
  readonly #buffer: Arena;
  readonly #adam: { m: Arena; v: Arena } | undefined;
  readonly #scratch: Record<'x' | 'y' | 'gram' | 'square' | 'partial', View>;

  constructor(spec: MuonSpec, trained: Trained) {
    const { gpu, weights } = trained;
    this.#spec = spec;
    this.#trained = trained;
    this.#matrices = weights.blocks.filter(isLayerMatrix);
    this.#others = weights.blocks.filter((block) => !isLayerMatrix(block));
    const arena = (blocks: Block[], label: string) => new Arena(gpu, placeBlocks(blocks, gpu.maxArenaBytes), label);
    this.#buffer = arena(this.#matrices, 'muon.momentum_buffer');
    // If adapters are trained, all parameters are matrices, and AdamW has none to update.
    this.#adam =
      this.#others.length > 0
        ? { m: arena(this.#others, 'adamw.exp_avg'), v: arena(this.#others, 'adamw.exp_avg_sq') }
        : undefined;
    this.states = new Map([
      ['momentum_buffer', this.#buffer],
      ...(this.#adam ? [['exp_avg', this.#adam.m] as const, ['exp_avg_sq', this.#adam.v] as const] : []),
    ]);
    const shapes = this.#matrices.flatMap(({ parts }) => parts.map(({ shape }) => shape));
    const largest = Math.max(...shapes.map(([rows, cols]) => rows * cols));
    const gram = Math.max(...shapes.map(([rows, cols]) => Math.min(rows, cols) ** 2));
    this.#scratch = {
      x: gpu.buffer('muon.x', largest * 4),
      y: gpu.buffer('muon.y', largest * 4),
      gram: gpu.buffer('muon.gram', gram * 4),
      square: gpu.buffer('muon.square', gram * 4),
      partial: gpu.buffer('muon.partial', NORM_SLOTS * 4),
    };
  }

  update(t: number, options: RuleOptions): void {
    const { gpu, weights, grads, clip } = this.#trained;
    const { lr, weightDecay } = options;
    const { momentum: mu, nesterov } = this.#spec;
    for (const { label, size: n } of this.#others) {
      const [w, g, m, v] = [weights, grads, this.#adam!.m, this.#adam!.v].map((arena) => arena.view(label));
      adamw(gpu, { clip, w, g, m, v, n, t, ...options });
    }
    for (const block of this.#matrices) {
      const { label, size: n } = block;
      const views = { clip, w: weights.view(label), g: grads.view(label), n };
      momentum(gpu, { ...views, m: this.#buffer.view(label), mu, rest: 1 - mu, nesterov });
      this.#orthogonalize(block, views.g);
      sgd(gpu, { ...views, lr, decay: weightDecay, isUpdate: true });
    }
  }

  /**
   * Records g = the orthogonalised update of every matrix in the block, times a factor that depends on the matrix's
   * shape.
   */
  #orthogonalize({ parts, width }: Block, g: View): void {
    const { gpu } = this.#trained;
    const { x, y } = this.#scratch;
    for (const { shape, column } of parts) {
      const [cols, rows] = shape; // stored transposed, [in, out]; orthogonalizing gives the same result
      copyColumns(gpu, { x: g, y: x, R: rows, C: cols, firstX: column, rowX: width, firstY: 0, rowY: cols });
      newtonSchulz(gpu, { ...this.#scratch, rows, cols, scale: adjustment(this.#spec.adjustLrFn, shape) });
      copyColumns(gpu, { x: y, y: g, R: rows, C: cols, firstX: 0, rowX: cols, firstY: column, rowY: width });
    }
  }

  free(): void {
    for (const view of Object.values(this.#scratch)) this.#trained.gpu.free(view);
  }
}

/** True for a linear layer's matrix, which blocks store transposed; false for tables of rows such as the embedding. */
const isLayerMatrix = ({ parts }: Block): boolean => parts[0].shape.length === 2 && parts[0].transposed;

/** Factor of the learning rate for a matrix of shape [out, in]. */
const adjustment = (fn: AdjustLrFn, [out, inputs]: readonly number[]): number =>
  fn === 'original' ? Math.sqrt(Math.max(1, out / inputs)) : 0.2 * Math.sqrt(Math.max(out, inputs));
