/**
 * The model's operations in plain float64 TypeScript: slow and simple, as the reference for every kernel. Arrays are flat and row-major;
 * the letters of the shapes are explained in config.ts. `dx` is the gradient with respect to `x`. Every function returns new arrays;
 * callers add up gradients. model.ts builds the complete model from these operations.
 */

type F64 = Float64Array;

/** Embedding: gathers rows of a table. table [V, C], tokens [N] -> y [N, C]. */
export function embedding(table: F64, tokens: Uint32Array, C: number): F64 {
  const y = new Float64Array(tokens.length * C);
  for (let n = 0; n < tokens.length; n++) {
    for (let c = 0; c < C; c++) y[n * C + c] = table[tokens[n] * C + c];
  }
  return y;
}

/** Backward of `embedding`. dy [N, C] -> dtable [V, C]. */
export function embeddingBwd(dy: F64, tokens: Uint32Array, V: number): F64 {
  const C = dy.length / tokens.length;
  const dtable = new Float64Array(V * C);
  for (let n = 0; n < tokens.length; n++) {
    for (let c = 0; c < C; c++) dtable[tokens[n] * C + c] += dy[n * C + c];
  }
  return dtable;
}

/**
 * RMSNorm (arXiv:1910.07467). x [N, C], weight [C] -> y [N, C], rstd [N] (reciprocal of the root mean square). Qwen3's norm over each head
 * is the same with x as [N * H, D].
 */
export function rmsnorm(x: F64, weight: F64, eps: number): { y: F64; rstd: F64 } {
  const C = weight.length;
  const N = x.length / C;
  const y = new Float64Array(N * C);
  const rstd = new Float64Array(N);
  for (let n = 0; n < N; n++) {
    let sumSq = 0;
    for (let c = 0; c < C; c++) sumSq += x[n * C + c] ** 2;
    rstd[n] = 1 / Math.sqrt(sumSq / C + eps);
    for (let c = 0; c < C; c++) y[n * C + c] = x[n * C + c] * rstd[n] * weight[c];
  }
  return { y, rstd };
}

/** Backward of `rmsnorm`. dy [N, C] -> dx [N, C], dweight [C]. */
export function rmsnormBwd(dy: F64, x: F64, weight: F64, rstd: F64): { dx: F64; dweight: F64 } {
  const C = weight.length;
  const dx = new Float64Array(x.length);
  const dweight = new Float64Array(C);
  for (let n = 0; n < rstd.length; n++) {
    let dot = 0;
    for (let c = 0; c < C; c++) dot += dy[n * C + c] * weight[c] * x[n * C + c];
    for (let c = 0; c < C; c++) {
      const i = n * C + c;
      dx[i] = rstd[n] * (dy[i] * weight[c] - (x[i] * rstd[n] ** 2 * dot) / C);
      dweight[c] += dy[i] * x[i] * rstd[n];
    }
  }
  return { dx, dweight };
}

/** Linear layer, y = x weight^T + bias. x [N, I], weight [O, I], bias [O] -> y [N, O]. */
export function linear(x: F64, weight: F64, I: number, bias?: F64): F64 {
  const N = x.length / I;
  const O = weight.length / I;
  const y = new Float64Array(N * O);
  for (let n = 0; n < N; n++) {
    for (let o = 0; o < O; o++) {
      let sum = bias ? bias[o] : 0;
      for (let i = 0; i < I; i++) sum += x[n * I + i] * weight[o * I + i];
      y[n * O + o] = sum;
    }
  }
  return y;
}

/** Backward of `linear`. dy [N, O] -> dx [N, I], dweight [O, I], dbias [O]. */
export function linearBwd(dy: F64, x: F64, weight: F64, I: number): { dx: F64; dweight: F64; dbias: F64 } {
  const N = x.length / I;
  const O = weight.length / I;
  const dx = new Float64Array(x.length);
  const dweight = new Float64Array(weight.length);
  const dbias = new Float64Array(O);
  for (let n = 0; n < N; n++) {
    for (let o = 0; o < O; o++) {
      const g = dy[n * O + o];
      dbias[o] += g;
      for (let i = 0; i < I; i++) {
        dx[n * I + i] += g * weight[o * I + i];
        dweight[o * I + i] += g * x[n * I + i];
      }
    }
  }
  return { dx, dweight, dbias };
}

/** Merges a LoRA adapter into a weight (arXiv:2106.09685): weight [O, I] + scale * b a, with a [R, I] and b [O, R] as in PEFT. */
export function loraMerge(weight: F64, a: F64, b: F64, I: number, scale: number): F64 {
  const R = a.length / I;
  const merged = Float64Array.from(weight);
  for (let o = 0; o < weight.length / I; o++) {
    for (let r = 0; r < R; r++) {
      for (let i = 0; i < I; i++) merged[o * I + i] += scale * b[o * R + r] * a[r * I + i];
    }
  }
  return merged;
}

/** Converts the gradient of the merged weight to those of the adapter: dweight [O, I] -> da [R, I], db [O, R]. */
export function loraMergeBwd(dweight: F64, a: F64, b: F64, I: number, scale: number): { da: F64; db: F64 } {
  const R = a.length / I;
  const [da, db] = [new Float64Array(a.length), new Float64Array(b.length)];
  for (let o = 0; o < dweight.length / I; o++) {
    for (let r = 0; r < R; r++) {
      for (let i = 0; i < I; i++) {
        da[r * I + i] += scale * b[o * R + r] * dweight[o * I + i];
        db[o * R + r] += scale * dweight[o * I + i] * a[r * I + i];
      }
    }
  }
  return { da, db };
}

/** Tables of RoPE from config.ts: cos and sin, each [P, D / 2]. */
export interface RopeTables {
  cos: ArrayLike<number>;
  sin: ArrayLike<number>;
}

/** RoPE (arXiv:2104.09864) in Llama's layout: rotates the pairs (i, i + D / 2) of each head. x [N, heads * D], positions [N]. */
export function rope(x: F64, positions: Uint32Array, tables: RopeTables, D: number): F64 {
  return rotate(x, positions, tables, D, 1);
}

/** Backward of `rope`. The transpose of a rotation is its inverse. dy [N, heads * D] -> dx. */
export function ropeBwd(dy: F64, positions: Uint32Array, tables: RopeTables, D: number): F64 {
  return rotate(dy, positions, tables, D, -1);
}

function rotate(x: F64, positions: Uint32Array, { cos, sin }: RopeTables, D: number, direction: 1 | -1): F64 {
  const half = D / 2;
  const rowSize = x.length / positions.length;
  const y = new Float64Array(x.length);
  for (let n = 0; n < positions.length; n++) {
    for (let start = n * rowSize; start < (n + 1) * rowSize; start += D) {
      for (let i = 0; i < half; i++) {
        const c = cos[positions[n] * half + i];
        const s = direction * sin[positions[n] * half + i];
        y[start + i] = x[start + i] * c - x[start + i + half] * s;
        y[start + i + half] = x[start + i + half] * c + x[start + i] * s;
      }
    }
  }
  return y;
}

export interface AttentionDims {
  /** query heads */ H: number;
  /** key/value heads; query head h reads head floor(h * K / H) */ K: number;
  /** head dim */ D: number;
}

/** Key rows that each query row n attends to: prefixStart..prefixEnd and ownStart..ownEnd. ranges [N, 4]. */
function keyRows(ranges: Uint32Array, n: number): number[] {
  const rows: number[] = [];
  for (let j = ranges[4 * n]; j < ranges[4 * n + 1]; j++) rows.push(j);
  for (let j = ranges[4 * n + 2]; j < ranges[4 * n + 3]; j++) rows.push(j);
  return rows;
}

/**
 * Grouped-query attention with scale 1 / sqrt(D). q [N, H * D], k and v [M, K * D] (M = N in training), ranges [N, 4] (see
 * keyRows) -> out [N, H * D], lse [N, H] (natural logarithm of the sum of exp(score)). Every row must attend to at least one key.
 */
export function attention(
  q: F64,
  k: F64,
  v: F64,
  ranges: Uint32Array,
  { H, K, D }: AttentionDims,
): { out: F64; lse: F64 } {
  const N = ranges.length / 4;
  const out = new Float64Array(N * H * D);
  const lse = new Float64Array(N * H);
  for (let n = 0; n < N; n++) {
    const keys = keyRows(ranges, n);
    for (let h = 0; h < H; h++) {
      const head = Math.floor((h * K) / H) * D;
      const scores = keys.map((j) => dot(q, (n * H + h) * D, k, j * K * D + head, D) / Math.sqrt(D));
      lse[n * H + h] = logSumExp(scores);
      for (const [at, j] of keys.entries()) {
        const p = Math.exp(scores[at] - lse[n * H + h]);
        for (let d = 0; d < D; d++) out[(n * H + h) * D + d] += p * v[j * K * D + head + d];
      }
    }
  }
  return { out, lse };
}

/** Backward of `attention`. dout [N, H * D] -> dq [N, H * D], dk and dv [M, K * D]. `out` and `lse` are the results of the forward pass. */
export function attentionBwd(
  dout: F64,
  { q, k, v, out, lse }: { q: F64; k: F64; v: F64; out: F64; lse: F64 },
  ranges: Uint32Array,
  { H, K, D }: AttentionDims,
): { dq: F64; dk: F64; dv: F64 } {
  const [dq, dk, dv] = [q, k, v].map((x) => new Float64Array(x.length));
  const scale = 1 / Math.sqrt(D);
  for (let n = 0; n < ranges.length / 4; n++) {
    for (let h = 0; h < H; h++) {
      const query = (n * H + h) * D;
      const delta = dot(dout, query, out, query, D);
      for (const j of keyRows(ranges, n)) {
        const key = j * K * D + Math.floor((h * K) / H) * D;
        const p = Math.exp(dot(q, query, k, key, D) * scale - lse[n * H + h]);
        const dscore = p * (dot(dout, query, v, key, D) - delta) * scale;
        for (let d = 0; d < D; d++) {
          dq[query + d] += dscore * k[key + d];
          dk[key + d] += dscore * q[query + d];
          dv[key + d] += p * dout[query + d];
        }
      }
    }
  }
  return { dq, dk, dv };
}

/** SwiGLU (arXiv:2002.05202): silu(gate) * up, elementwise. gate, up [N, F] -> y [N, F]. */
export function swiglu(gate: F64, up: F64): F64 {
  return gate.map((g, i) => (g / (1 + Math.exp(-g))) * up[i]);
}

/** Backward of `swiglu`. dy [N, F] -> dgate, dup [N, F]. */
export function swigluBwd(dy: F64, gate: F64, up: F64): { dgate: F64; dup: F64 } {
  const dgate = new Float64Array(gate.length);
  const dup = new Float64Array(gate.length);
  for (let i = 0; i < gate.length; i++) {
    const sigmoid = 1 / (1 + Math.exp(-gate[i]));
    dgate[i] = dy[i] * up[i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
    dup[i] = dy[i] * gate[i] * sigmoid;
  }
  return { dgate, dup };
}

/** The E tokens whose log-prob is computed: the row of `x` from which each is predicted, and its id; both [E]. */
export interface HeadEntries {
  entryRow: Uint32Array;
  targets: Uint32Array;
}

/**
 * Log-probs and entropies (natural logarithms) of softmax(x weight^T / temperature) for E target tokens, each at a row of x.
 * x [R, C], weight [V, C]. -> logProbs [E], entropy [E] (of each target's row), rowEntropy [R], lse [R] (log-sum-exp of the logits after
 * division by the temperature).
 */
export function head(x: F64, weight: F64, C: number, entries: HeadEntries, temperature: number) {
  const V = weight.length / C;
  const R = x.length / C;
  const scaled_RV = linear(x, weight, C).map((logit) => logit / temperature);
  const lse = new Float64Array(R);
  const rowEntropy = new Float64Array(R);
  for (let r = 0; r < R; r++) {
    const row = scaled_RV.subarray(r * V, (r + 1) * V);
    lse[r] = logSumExp(row);
    let mean = 0;
    for (const logit of row) mean += Math.exp(logit - lse[r]) * logit;
    rowEntropy[r] = lse[r] - mean;
  }
  const { entryRow, targets } = entries;
  const logProbs = Float64Array.from(targets, (token, e) => scaled_RV[entryRow[e] * V + token] - lse[entryRow[e]]);
  const entropy = Float64Array.from(entryRow, (r) => rowEntropy[r]);
  return { logProbs, entropy, rowEntropy, lse };
}

/**
 * For each of E tokens, its interval in the cumulative distribution over the vocabulary, in the order of token ids: the probability mass
 * before the token, and including it. -> below [E], through [E].
 */
export function headCdf(x: F64, weight: F64, C: number, { entryRow, targets }: HeadEntries, temperature: number) {
  const V = weight.length / C;
  const scaled_RV = linear(x, weight, C).map((logit) => logit / temperature);
  const [below, through] = [new Float64Array(targets.length), new Float64Array(targets.length)];
  targets.forEach((token, e) => {
    const row = scaled_RV.subarray(entryRow[e] * V, (entryRow[e] + 1) * V);
    const lse = logSumExp(row);
    for (let j = 0; j < token; j++) below[e] += Math.exp(row[j] - lse);
    through[e] = below[e] + Math.exp(row[token] - lse);
  });
  return { below, through };
}

/**
 * Backward of `head`, from d loss / d logProbs [E] and d loss / d entropy [E]:
 *   d logp / d z_j = 1[j = target] - p_j,  d H / d z_j = -p_j (log p_j + H),  z = logits / temperature.
 * -> dx [R, C], dweight [V, C].
 */
export function headBwd(
  d: { dLogProbs: ArrayLike<number>; dEntropy?: ArrayLike<number> | undefined },
  forward: { x: F64; weight: F64; lse: F64; rowEntropy: F64 },
  C: number,
  { entryRow, targets }: HeadEntries,
  temperature: number,
): { dx: F64; dweight: F64 } {
  const { x, weight, lse, rowEntropy } = forward;
  const V = weight.length / C;
  const logp_RV = linear(x, weight, C).map((logit, i) => logit / temperature - lse[Math.floor(i / V)]);
  const dlogits_RV = new Float64Array(logp_RV.length);
  for (let e = 0; e < targets.length; e++) {
    const r = entryRow[e];
    const dLogProb = d.dLogProbs[e];
    const dEntropy = d.dEntropy?.[e] ?? 0;
    for (let j = 0; j < V; j++) {
      const logp = logp_RV[r * V + j];
      const p = Math.exp(logp);
      const dz = dLogProb * ((j === targets[e] ? 1 : 0) - p) - dEntropy * p * (logp + rowEntropy[r]);
      dlogits_RV[r * V + j] += dz / temperature;
    }
  }
  const { dx, dweight } = linearBwd(dlogits_RV, x, weight, C);
  return { dx, dweight };
}

/**
 * Quantizes x [n] in blocks of 32 to `bits` bits per value. Returns the values after dequantization, and for each value the scale of its
 * block.
 */
export function quantize(x: F64, bits: 4 | 8): { values: F64; scales: F64 } {
  const [values, scales] = [new Float64Array(x.length), new Float64Array(x.length)];
  const zero = 2 ** (bits - 1);
  for (let first = 0; first < x.length; first += 32) {
    const block = x.subarray(first, first + 32);
    const top = block.reduce((most, v) => (Math.abs(v) > Math.abs(most) ? v : most), 0);
    const scale = -top / zero;
    block.forEach((v, e) => {
      const q = scale === 0 ? 0 : Math.min(zero - 1, Math.max(-zero, Math.round(v / scale)));
      values[first + e] = q * scale;
      scales[first + e] = Math.abs(scale);
    });
  }
  return { values, scales };
}

/** Dot product of two rows: sum over d < D of a[aStart + d] * b[bStart + d]. */
function dot(a: F64, aStart: number, b: F64, bStart: number, D: number): number {
  let sum = 0;
  for (let d = 0; d < D; d++) sum += a[aStart + d] * b[bStart + d];
  return sum;
}

function logSumExp(values: ArrayLike<number>): number {
  let max = -Infinity;
  for (let i = 0; i < values.length; i++) max = Math.max(max, values[i]);
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += Math.exp(values[i] - max);
  return max + Math.log(sum);
}
