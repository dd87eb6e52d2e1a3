/** Sampling in float64, written from the description in kernels/sample.wgsl, not from its code. */

export interface SamplingControl {
  /** 0 = greedy */ temperature: number;
  topK: number;
  topP: number;
  minP: number;
}

/** Jarzynski & Olano 2020: maps four words of state to four well-mixed words, of which the first is used. */
function pcg4d(seed: [number, number, number, number]): number {
  const v = seed.map((x) => (Math.imul(x, 1664525) + 1013904223) >>> 0);
  const mix = () => {
    v[0] = (v[0] + Math.imul(v[1], v[3])) >>> 0;
    v[1] = (v[1] + Math.imul(v[2], v[0])) >>> 0;
    v[2] = (v[2] + Math.imul(v[0], v[1])) >>> 0;
    v[3] = (v[3] + Math.imul(v[1], v[2])) >>> 0;
  };
  mix();
  for (let i = 0; i < 4; i++) v[i] = (v[i] ^ (v[i] >>> 16)) >>> 0;
  mix();
  return v[0];
}

/** Returns the uniform random number in [0, 1) of a key at a position. */
export const uniformOf = (key: [number, number], position: number): number =>
  (pcg4d([key[0], key[1], position, 0x9e3779b9]) >>> 8) * 2 ** -24;

/** Returns natural log-probs of softmax(logits / T); for greedy, at temperature 1. */
export function logProbsOf(logits: ArrayLike<number>, temperature: number): Float64Array {
  const z = Float64Array.from(logits, (x) => x / (temperature || 1));
  const top = z.reduce((a, b) => Math.max(a, b), -Infinity);
  const lse = top + Math.log(z.reduce((sum, x) => sum + Math.exp(x - top), 0));
  return z.map((x) => x - lse);
}

/**
 * Returns which tokens can be sampled: the tightest of top-k, top-p and min-p, including ties with the last one kept. top-p is a share of
 * the mass that top-k keeps.
 */
export function keptTokens(logProbs: Float64Array, { topK, topP, minP }: SamplingControl): boolean[] {
  const sorted = [...logProbs].sort((a, b) => b - a);
  let least = -Infinity;
  if (topK > 0 && topK < sorted.length) least = Math.max(least, sorted[topK - 1]);
  if (topP < 1) {
    const kept = sorted.filter((logp) => logp >= least).map(Math.exp);
    const goal = topP * kept.reduce((sum, p) => sum + p, 0);
    let mass = 0;
    least = Math.max(least, sorted[kept.findIndex((p) => (mass += p) >= goal)] ?? -Infinity);
  }
  if (minP > 0) least = Math.max(least, sorted[0] + Math.log(minP));
  return Array.from(logProbs, (logp) => logp >= least);
}

/**
 * Samples from the kept tokens: the token at fraction u of their probability mass, in index order. `margin` is the distance of u from the
 * nearest boundary between two tokens.
 */
export function drawToken(logProbs: Float64Array, kept: boolean[], u: number): { token: number; margin: number } {
  const mass = logProbs.map((logp, j) => (kept[j] ? Math.exp(logp) : 0));
  const total = mass.reduce((a, b) => a + b, 0);
  let [sum, token, margin] = [0, -1, 1];
  mass.forEach((p, j) => {
    if (p === 0) return;
    sum += p / total;
    margin = Math.min(margin, Math.abs(sum - u));
    if (token < 0 && sum > u) token = j;
  });
  return { token: token < 0 ? kept.lastIndexOf(true) : token, margin };
}
