/**
 * The forward pass in tfjs operations. Uses only operations whose gradient works: in tfjs 4.22 the gradients of einsum, gatherND, tile and
 * comparisons fail. Weights are the blocks of our weight buffer, stored as [in, out], with q|k|v and gate|up each fused into one.
 */

import type { Tensor } from '@tensorflow/tfjs';
import type { ModelConfig } from '../../model/config.ts';
import type { PackedBatch } from '../../model/engine.ts';
import type { Tf } from './backend.ts';

/**
 * Maximum number of rows for which groups are joined into one attention computation. More rows need fewer dispatches, but work grows with
 * their square.
 */
const ATTENTION_ROWS = 128;

export interface TfjsPass {
  tf: Tf;
  config: ModelConfig;
  /** Weights, by the label of their block. */ weights: Map<string, Tensor>;
  /** Cosines, then sines, for every position: [P, D]. */ ropeTable: Tensor;
  /** Maximum number of bytes of logits that are stored at a time. */ logitsBytes: number;
}

/**
 * Returns a tensor of 2E values: the log-probs of the E scored tokens, then their entropies. Call it inside tf.tidy or a gradient function.
 */
export function tfjsForward(pass: TfjsPass, batch: PackedBatch, temperature: number): Tensor {
  const { tf, config, weights } = pass;
  const rope = ropeOf(pass, batch.positions);
  const chunks = attentionChunks(batch.ranges).map((c) => ({ ...c, mask: maskOf(tf, batch.ranges, c) }));
  let x = takeRows(tf, weights.get('embed')!, batch.tokens);
  for (let l = 0; l < config.numHiddenLayers; l++) x = layer(pass, l, x, rope, chunks);
  const hidden = rmsnorm(pass, takeRows(tf, x, batch.headRows), weights.get('finalNorm')!);
  return head(pass, hidden, batch, temperature);
}

interface Rope {
  /** Cosines of RoPE's angles for each row of the batch, [N, 1, D / 2]; `sin` has the sines. */ cos: Tensor;
  sin: Tensor;
}

interface Chunk {
  start: number;
  end: number;
}

type MaskedChunk = Chunk & { /** Attention mask [1, n, n]: 0 where a row attends, -1e9 elsewhere. */ mask: Tensor };

function layer(pass: TfjsPass, l: number, x: Tensor, rope: Rope, chunks: MaskedChunk[]): Tensor {
  const { tf, weights } = pass;
  const w = (name: string) => weights.get(`${l}.${name}`);
  const h1 = rmsnorm(pass, x, w('attnNorm')!);
  const plus = (product: Tensor, bias: Tensor | undefined) => (bias ? tf.add(product, bias) : product);
  const qkv = plus(tf.matMul(h1, w('wqkv')!), w('bqkv'));
  const att = attention(pass, qkv, w('qkNorm'), rope, chunks);
  const xMid = tf.add(x, plus(tf.matMul(att, w('wo')!), w('bo')));
  const h2 = rmsnorm(pass, xMid, w('mlpNorm')!);
  const [gate, up] = tf.split(plus(tf.matMul(h2, w('wgu')!), w('bgu')), 2, 1);
  const act = tf.mul(tf.mul(gate, tf.sigmoid(gate)), up);
  return tf.add(xMid, plus(tf.matMul(act, w('wdown')!), w('bdown')));
}

/** RMSNorm over the last axis. */
function rmsnorm({ tf, config }: TfjsPass, x: Tensor, weight: Tensor): Tensor {
  const meanSquare = tf.mean(tf.square(x), -1, true);
  return tf.mul(tf.mul(x, tf.rsqrt(tf.add(meanSquare, config.rmsNormEps))), weight);
}

/** Attention: maps qkv [N, (H + 2K) * D] to [N, H * D]. Tokens of different groups do not attend to each other. */
function attention(pass: TfjsPass, qkv: Tensor, qkNorm: Tensor | undefined, rope: Rope, chunks: MaskedChunk[]): Tensor {
  const { tf, config } = pass;
  const { numAttentionHeads: H, numKeyValueHeads: K, headDim: D } = config;
  const [qFlat, kFlat, vFlat] = tf.split(qkv, [H * D, K * D, K * D], 1);
  const [qWeight, kWeight] = qkNorm ? tf.split(qkNorm, 2, 0) : [];
  const headsFirst = (x: Tensor) => tf.transpose(x, [1, 0, 2]);
  const rotated = (flat: Tensor, heads: number, weight: Tensor | undefined) => {
    const x = tf.reshape(flat, [-1, heads, D]);
    return headsFirst(rotate(tf, weight ? rmsnorm(pass, x, weight) : x, rope));
  };
  const q = rotated(qFlat, H, qWeight); // [H, N, D]
  const k = rotated(kFlat, K, kWeight); // [K, N, D]
  const v = headsFirst(tf.reshape(vFlat, [-1, K, D]));
  const parts = chunks.map((chunk) => attendChunk(pass, q, k, v, chunk));
  const out = parts.length === 1 ? parts[0] : tf.concat(parts, 1);
  return tf.reshape(headsFirst(out), [-1, H * D]);
}

/** Attention over the rows of one chunk. q is [H, N, D], k and v are [K, N, D], of which rows start..end are used. Returns [H, n, D]. */
function attendChunk({ tf, config }: TfjsPass, q: Tensor, k: Tensor, v: Tensor, chunk: MaskedChunk): Tensor {
  const { numAttentionHeads: H, numKeyValueHeads: K, headDim: D } = config;
  const n = chunk.end - chunk.start;
  const rows = (x: Tensor) => (n === x.shape[1] ? x : tf.slice(x, [0, chunk.start, 0], [-1, n, -1]));
  // Query heads that share a key head are adjacent, so they become rows of a single matrix product.
  const grouped = tf.reshape(rows(q), [K, (H / K) * n, D]);
  const scores = tf.reshape(tf.matMul(grouped, rows(k), false, true), [H, n, n]);
  const p = tf.softmax(tf.add(tf.mul(scores, 1 / Math.sqrt(D)), chunk.mask));
  return tf.reshape(tf.matMul(tf.reshape(p, [K, (H / K) * n, n]), rows(v)), [H, n, D]);
}

/** Applies RoPE to x [N, heads, D]. Value i of the first half of D and value i of the second half are rotated as a pair. */
function rotate(tf: Tf, x: Tensor, { cos, sin }: Rope): Tensor {
  const [a, b] = tf.split(x, 2, 2);
  return tf.concat([tf.sub(tf.mul(a, cos), tf.mul(b, sin)), tf.add(tf.mul(b, cos), tf.mul(a, sin))], 2);
}

function ropeOf({ tf, ropeTable, config }: TfjsPass, positions: Uint32Array): Rope {
  const rows = tf.gather(ropeTable, tf.tensor1d(Int32Array.from(positions), 'int32'));
  const [cos, sin] = tf.split(tf.reshape(rows, [-1, 1, config.headDim]), 2, 2);
  return { cos, sin };
}

/** Maps hidden states [R, C] to the log-probs, then the entropies of E tokens, [2E], in chunks whose logits fit into `logitsBytes`. */
function head(pass: TfjsPass, hidden: Tensor, batch: PackedBatch, temperature: number): Tensor {
  const { tf, weights, logitsBytes } = pass;
  const table = weights.get('head') ?? weights.get('embed')!;
  const [V, C] = table.shape;
  const chunks = headChunks(batch, Math.max(1, Math.floor(logitsBytes / 4 / V)));
  const parts = chunks.map(({ first, rows, entries }) => {
    const entryRow = entries.map((e) => batch.entryRow[e] - first);
    const targets = entries.map((e) => batch.targets[e]);
    const run = (h: Tensor, t: Tensor) => headRows(tf, h, t, entryRow, targets, temperature);
    if (chunks.length === 1) return run(hidden, table);
    return checkpoint(tf, run, tf.slice(hidden, [first, 0], [rows, C]), table);
  });
  const sorted = parts.length === 1 ? parts[0] : tf.concat(parts, 0); // [E, 2], entries in rowEntries order
  const place = new Uint32Array(batch.rowEntries.length);
  batch.rowEntries.forEach((e, at) => (place[e] = at));
  return tf.reshape(tf.transpose(takeRows(tf, sorted, place)), [-1]);
}

function headChunks({ headRows, rowStart, rowEntries }: PackedBatch, maxRows: number) {
  const chunks: { first: number; rows: number; entries: Uint32Array }[] = [];
  for (let first = 0; first < headRows.length; first += maxRows) {
    const rows = Math.min(maxRows, headRows.length - first);
    chunks.push({ first, rows, entries: rowEntries.subarray(rowStart[first], rowStart[first + rows]) });
  }
  return chunks;
}

/** Maps hidden states [R, C] and the output embedding [V, C] to [E, 2]: log-prob and entropy. */
function headRows(
  tf: Tf,
  hidden: Tensor,
  table: Tensor,
  entryRow: Uint32Array,
  targets: Uint32Array,
  temperature: number,
): Tensor {
  const logProbs = tf.logSoftmax(tf.mul(tf.matMul(hidden, table, false, true), 1 / temperature)); // [R, V]
  const at = entryRow.map((row, e) => row * table.shape[0] + targets[e]);
  const entropy = tf.neg(tf.sum(tf.mul(tf.exp(logProbs), logProbs), 1, true)); // [R, 1]
  return tf.concat([takeRows(tf, tf.reshape(logProbs, [-1, 1]), at), takeRows(tf, entropy, entryRow)], 1);
}

/** Gradient checkpointing: returns run(x, table) without storing its intermediate tensors, which the backward pass computes again. */
function checkpoint(tf: Tf, run: (x: Tensor, table: Tensor) => Tensor, x: Tensor, table: Tensor): Tensor {
  const op = tf.customGrad((...args) => {
    const [a, b, save] = args as [Tensor, Tensor, (tensors: Tensor[]) => void];
    save([a, b]);
    return {
      value: run(a, b),
      gradFunc: (dy, saved) => keepTape(tf, () => tf.grads(run)(saved, dy)),
    };
  });
  return op(x, table);
}

/**
 * Runs `body`, which computes a gradient inside a backward pass, and restores the outer tape. tfjs 4.22 would drop it, so that the outer
 * pass could not free its tensors.
 */
function keepTape<T>(tf: Tf, body: () => T): T {
  const { state } = tf.engine();
  const tape = state.activeTape;
  try {
    return body();
  } finally {
    state.activeTape = tape;
  }
}

/**
 * Gathers rows of table [n, C] to [index.length, C]. If an index repeats, the gradient of tf.gather adds with atomics in an arbitrary
 * order. To be deterministic, each row is then gathered once and repeated by a product with a one-hot matrix.
 */
function takeRows(tf: Tf, table: Tensor, index: Uint32Array): Tensor {
  const distinct = Uint32Array.from(new Set(index)).sort();
  if (distinct.length === index.length) return tf.gather(table, tf.tensor1d(Int32Array.from(index), 'int32'));
  const rows = tf.gather(table, tf.tensor1d(Int32Array.from(distinct), 'int32'));
  // tf.oneHot throws for a depth of 1, so the one row is repeated by a product with ones.
  if (distinct.length === 1) return tf.matMul(tf.ones([index.length, 1]), rows);
  const place = new Map(Array.from(distinct, (i, at) => [i, at]));
  const places = Int32Array.from(index, (i) => place.get(i)!);
  return tf.matMul(tf.oneHot(tf.tensor1d(places, 'int32'), distinct.length), rows);
}

/** Splits the rows of a batch between groups, into chunks of at most ATTENTION_ROWS rows; a larger group is a chunk of its own. */
export function attentionChunks(ranges: Uint32Array): Chunk[] {
  const N = ranges.length / 4;
  const chunks: Chunk[] = [];
  for (let start = 0, end; start < N; start = end) {
    end = groupEnd(ranges, start);
    const last = chunks.at(-1);
    if (last && end - last.start <= ATTENTION_ROWS) last.end = end;
    else chunks.push({ start, end });
  }
  return chunks;
}

/** Returns the row after the end of a group. All rows of a group have the start of its prompt as prefixStart. */
function groupEnd(ranges: Uint32Array, start: number): number {
  let end = start + 1;
  while (end * 4 < ranges.length && ranges[end * 4] === start) end++;
  return end;
}

/** Returns the attention mask [1, n, n]: 0 where a row attends (its two ranges), -1e9 elsewhere. */
function maskOf(tf: Tf, ranges: Uint32Array, { start, end }: Chunk): Tensor {
  const n = end - start;
  const mask = new Float32Array(n * n).fill(-1e9);
  for (let row = 0; row < n; row++) {
    const [a, b, c, d] = ranges.subarray((start + row) * 4, (start + row) * 4 + 4);
    mask.fill(0, row * n + a - start, row * n + b - start);
    mask.fill(0, row * n + c - start, row * n + d - start);
  }
  return tf.tensor3d(mask, [1, n, n]);
}
